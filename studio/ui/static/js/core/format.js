// Numbers and states as people read them.

import { locale, t } from "./text.js";

const cache = new Map();

/** A number with these options of Intl.NumberFormat. */
function number(value, options) {
  const key = JSON.stringify(options);
  if (!cache.has(key)) cache.set(key, new Intl.NumberFormat(locale, options));
  return cache.get(key).format(value);
}

const TENTHS = { minimumFractionDigits: 1, maximumFractionDigits: 1 };

/** 0.84 -> "0.8 s", 7.2 -> "7 s", 95 -> "1 min 35 s". */
export function seconds(value) {
  if (value < 9.95) return t("time.seconds", { seconds: number(Math.max(0, value), TENTHS) });
  if (value < 89.5) return t("time.seconds", { seconds: Math.round(value) });
  const whole = Math.round(value);
  const [minutes, rest] = [Math.floor(whole / 60), whole % 60];
  if (whole < 3600) return rest ? t("time.minutesSeconds", { minutes, seconds: rest }) : t("time.minutes", { minutes });
  return t("time.hours", { hours: Math.floor(whole / 3600), minutes: Math.round((whole % 3600) / 60) });
}

/** Without a needless ".0": 5 -> "5 s", 0.53 -> "0.5 s". */
const shortSeconds = (value) => (value < 9.95 ? t("time.seconds", { seconds: number(value, { maximumFractionDigits: 1 }) }) : seconds(value));

/** For countdowns, where tenths only flicker. */
export function wholeSeconds(value) {
  return value < 89.5 ? t("time.seconds", { seconds: Math.max(0, Math.round(value)) }) : seconds(value);
}

/** The most that a picture is enlarged: beyond it a small one is only blurry, not bigger. */
export const MAX_SCALE = 2;

/** "832 × 480", of a video "832 × 480, 81 frames (5 s)"; without the time where its frames a second are not known. */
export function shapeName(shape, fps = null) {
  const size = frameName(shape);
  return framesIn(shape) > 1 ? t("size.video", { size, length: lengthName(shape, fps) }) : size;
}

export function frameName(shape) {
  const [width, height] = shape.split("x");
  return `${width} × ${height}`;
}

/** "81 frames (5 s)": from the first frame to the last. */
export function lengthName(shape, fps) {
  const count = framesIn(shape);
  const frames = t("size.frames", { count });
  return fps ? t("size.lasting", { frames, time: shortSeconds((count - 1) / fps) }) : frames;
}

const SWAP_PARTS = ["unload", "find", "load", "shard", "compile", "cache"];

/** What a switch to another model cost: "unloading 0.3 s, loading 1.2 s"; what took no time is left out. */
export const swapParts = (swap) =>
  SWAP_PARTS.filter((part) => swap[`${part}_s`] >= 0.05)
    .map((part) => t(`swap.${part}`, { time: seconds(swap[`${part}_s`]) }))
    .join(t("swap.between"));

export const percent = (fraction) => t("format.percent", { percent: Math.round(100 * fraction) });

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
  dpmpp_2m_sde: "DPM++ 2M SDE",
  ddim: "DDIM",
  lcm: "LCM",
  tcd: "TCD",
  dpmpp_sde: "DPM++ SDE",
  er_sde: "ER-SDE",
  flow_match_euler: "Flow match Euler",
  unipc: "UniPC",
  flow_dpmpp_2m: "DPM++ 2M",
};
const SPACINGS = { trailing: "trailing", karras: "Karras", exponential: "exponential", beta: "beta", even: "even" };
export function schedulerName(name) {
  const [, base, spacing] = name.match(/^(.*)_([a-z]+)$/) ?? [];
  const known = SCHEDULERS[name] ?? (SPACINGS[spacing] && SCHEDULERS[base] && `${SCHEDULERS[base]} ${SPACINGS[spacing]}`);
  return known ?? name.replaceAll("_", " ");
}

export const capitalized = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** A message of a field as a sentence of its own. */
export const sentence = (message) =>
  /[.。…]$/.test(message) || !message ? capitalized(message) : t("common.sentence", { text: capitalized(message) });

export const STATES = { warm: t("size.warm"), disk: t("size.disk"), cold: t("size.cold") };

const since = new Intl.RelativeTimeFormat(locale, { style: "short" });

export function ago(at_s, now_s) {
  const passed = now_s - at_s;
  if (passed < 60) return t("time.now");
  if (passed < 3600) return since.format(-Math.floor(passed / 60), "minute");
  if (passed < 86400) return since.format(-Math.floor(passed / 3600), "hour");
  return new Date(at_s * 1000).toLocaleDateString(locale);
}

const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];

/** 1234567 -> "1.2 MB": as disks and chips are sold, in powers of ten. */
export function bytes(count) {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, count)) / 3)));
  const value = count / 1000 ** power;
  const digits = power && value < 99.5 ? TENTHS : { maximumFractionDigits: 0 };
  return number(value, { style: "unit", unit: UNITS[power], unitDisplay: power ? "short" : "long", ...digits });
}

function dollars(usd) {
  const digits = usd >= 0.995 ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { maximumSignificantDigits: 2 };
  return number(usd, { style: "currency", currency: "USD", currencyDisplay: "narrowSymbol", ...digits });
}

export const milliseconds = (value) =>
  number(value, { style: "unit", unit: "millisecond", unitDisplay: "short", maximumFractionDigits: 2 });

export const chipSeconds = (value) => number(value, { maximumFractionDigits: value < 10 ? 2 : value < 100 ? 1 : 0 });

/** How long a job took, "" where that is not known. Of a training that went on it is its last part that was measured. */
export function tookText({ kind, attempt, timings }) {
  if (!timings?.total_s) return "";
  const time = seconds(timings.total_s);
  return kind === "train" && attempt > 1 ? t("time.sinceItWentOn", { time }) : time;
}

/** Chip-seconds mean something to people where a chip has a price (--chip-price). */
export const hasPrice = ({ cost_usd }) => typeof cost_usd === "number";

/** Of a job, an output or an owner's total with a price: "12.3 chip-seconds · $0.0041". */
export const costText = ({ chip_seconds, cost_usd }) =>
  `${t("cost.chipSeconds", { seconds: chipSeconds(chip_seconds) })} · ${dollars(cost_usd)}`;

export const moneyText = (usd) => (usd === null ? "–" : dollars(usd));
