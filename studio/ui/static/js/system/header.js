// The line that says which machine this is and what it does right now.

import { find, setText } from "../core/dom.js";
import { phaseName } from "../core/progress.js";
import { livingWorkers, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { said, saidCard } from "../core/translate_server.js";

const TONES = { ready: "idle", busy: "busy", preparing: "busy", starting: "busy", restarting: "down", stopped: "down" };

export function drawHeader() {
  const engine = state.engine;
  const place = find("lu-engine-state");
  const box = place.parentElement;
  const count = livingWorkers();
  const isOne = count < 2;
  setText(find("lu-device"), isOne ? said(engine, "device") : t("workers.many", { count }));
  if (state.connection !== "live") {
    box.dataset.state = state.connection === "lost" ? "lost" : "unknown";
    setText(place, t(state.connection === "lost" ? "engine.reconnecting" : "engine.connecting"));
    return;
  }
  const { busy = 0 } = state.workers;
  box.dataset.state = !isOne && busy ? "busy" : (TONES[engine?.state] ?? "unknown");
  if (!isOne && busy) setText(place, t("workers.busy", { busy, count }));
  else setText(place, [engine ? t(`engine.${engine.state}`) : "", phaseOf(engine)].filter(Boolean).join(" · "));
  box.title = [said(engine, "activity"), said(engine?.error, "detail")].filter(Boolean).join(" — ");
  drawAlert(engine?.error);
}

function phaseOf(engine) {
  if (!engine?.phase || engine.state !== "preparing") return "";
  const isCounted = engine.phase_total > 1 && engine.phase_total < 1e6;
  return `${phaseName(engine.phase)}${isCounted ? ` ${engine.phase_done}/${engine.phase_total}` : ""}`;
}

/** The engine's own trouble (a model that cannot be loaded, a worker that ended) concerns everybody, so it stands above the picture. */
function drawAlert(error) {
  const alert = find("lu-alert");
  alert.hidden = !error;
  if (!error) return;
  const { title, detail, advice } = saidCard(error);
  setText(alert, together(t("common.sentence", { text: title }), detail, advice));
}
