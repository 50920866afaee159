// The line that says which machine this is and what it does right now.

import { find, setText } from "./dom.js";
import { capitalized } from "./format.js";
import { state } from "./store.js";

const TONES = { ready: "idle", busy: "busy", preparing: "busy", starting: "busy", restarting: "down", stopped: "down" };

export function drawHeader() {
  const engine = state.engine;
  const place = find("lu-engine-state");
  const box = place.parentElement;
  setText(find("lu-device"), engine?.device ?? "");
  if (state.connection !== "live") {
    box.dataset.state = state.connection === "lost" ? "lost" : "unknown";
    setText(place, state.connection === "lost" ? "Reconnecting…" : "Connecting…");
    return;
  }
  box.dataset.state = TONES[engine?.state] ?? "unknown";
  const phase =
    engine?.phase && engine.state === "preparing"
      ? ` · ${engine.phase}${engine.phase_total > 1 && engine.phase_total < 1e6 ? ` ${engine.phase_done}/${engine.phase_total}` : ""}`
      : "";
  setText(place, `${capitalized(engine?.state ?? "")}${phase}`);
  box.title = [engine?.activity, engine?.error?.detail].filter(Boolean).join(" — ");
  drawAlert(engine?.error);
}

/** The engine's own trouble (a model that cannot be loaded, a worker that ended) concerns everybody, so it stands above the picture. */
function drawAlert(error) {
  const alert = find("lu-alert");
  alert.hidden = !error;
  if (error) setText(alert, [`${error.title}.`, error.detail, error.advice].filter(Boolean).join(" "));
}
