// Numbers and states as people read them.

/** 0.84 -> "0.8 s", 7.2 -> "7 s", 95 -> "1 min 35 s". */
export function seconds(value) {
  if (value < 9.95) return `${Math.max(0, value).toFixed(1)} s`;
  if (value < 89.5) return `${Math.round(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  return `${Math.floor(whole / 3600)} h ${Math.round((whole % 3600) / 60)} min`;
}

/** For countdowns, where tenths only flicker. */
export function wholeSeconds(value) {
  return value < 89.5 ? `${Math.max(0, Math.round(value))} s` : seconds(value);
}

export function shapeName(shape) {
  const [width, height, frames] = shape.split("x");
  return `${width} × ${height}${frames ? ` · ${frames} frames` : ""}`;
}

export const framesIn = (shape) => Number(shape.split("x")[2] ?? 1);

export function ratioOf(shape) {
  const [width, height] = shape.split("x").map(Number);
  return width / height || 1;
}

/** "dpmpp_2m" -> "DPM++ 2M": the field's spelling where it has one. */
const SCHEDULERS = {
  euler: "Euler",
  euler_ancestral: "Euler ancestral",
  dpmpp_2m: "DPM++ 2M",
  ddim: "DDIM",
  flow_match_euler: "Flow match Euler",
  unipc: "UniPC",
};
export const schedulerName = (name) => SCHEDULERS[name] ?? name.replaceAll("_", " ");

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const STATES = { warm: "warm", disk: "cached", cold: "cold" };

export function ago(at_s, now_s) {
  const passed = now_s - at_s;
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return new Date(at_s * 1000).toLocaleDateString();
}
