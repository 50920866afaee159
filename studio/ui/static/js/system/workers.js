// The workers of the Devices tab: what each is, holds and runs, and taking one out of the queue's sight.
// Not here: the devices of the chosen one (system.js).

import { drainWorker, forgetWorker, readWorkers } from "../core/api.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { STATES, capitalized, moneyText, shapeName, wholeSeconds } from "../core/format.js";
import { phaseName } from "../core/progress.js";
import { modelOf, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { said, saidCard } from "../core/translate_server.js";

const RANK = { warm: 0, disk: 1, cold: 2 };
const QUIET_S = 15; // a worker tells every second or so that it is there

/** The id of the worker whose devices are shown; null: the first. */
let chosenId = null;
/** @type {(error: any) => unknown} */
let tell = () => undefined;
let workers = [];

/** `listener(error)` is called with what went wrong, and with null when somebody chose a worker. */
export function mountWorkers(listener) {
  tell = listener;
  find("lu-sys-workers").addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-act]");
    if (button) await act(button.dataset.act, button.closest("[data-worker]").dataset.worker);
  });
  const select = find("lu-sys-choice");
  select.addEventListener("change", () => {
    chosenId = select.value;
    tell(null);
  });
}

async function act(what, id) {
  try {
    if (what === "forget") await forgetWorker(id);
    else await drainWorker(id, what === "drain");
    await drawWorkers();
  } catch (error) {
    tell(error);
  }
}

/** The worker whose devices are to be shown; null while there is only one, which /system tells of. */
export const chosenWorker = () => (workers.length > 1 ? (workers.find(({ id }) => id === chosenId) ?? firstOf(workers)) : null);

/** Whether jobs cost more on one worker than on another. */
export const havePricesOfTheirOwn = () => new Set(workers.map(({ machine }) => machine.chip_price)).size > 1;

const firstOf = (all) => all.find(({ id }) => id === state.worker) ?? all[0];

export async function drawWorkers() {
  const found = await readWorkers();
  workers = found.workers;
  const now_s = Date.now() / 1000;
  keyed(find("lu-sys-workers"), workers, {
    key: ({ id }) => id,
    create: createWorker,
    update: (item, worker) => updateWorker(item, worker, { join: found.join, now_s }),
  });
  drawChoice();
  const join = find("lu-sys-join");
  join.hidden = found.engine === "local";
  setText(join.querySelector("code"), `python -m studio.worker join ${found.join ?? "HOST:PORT"}`);
}

function drawChoice() {
  const select = find("lu-sys-choice");
  select.hidden = workers.length < 2;
  keyed(select, workers, { key: ({ id }) => id, create: ({ id }) => el("option", { value: id }, id) });
  const shown = chosenWorker();
  if (shown) select.value = shown.id;
}

const createWorker = ({ id }) =>
  el(
    "li.lu-worker",
    { data: { worker: id } },
    el("div.lu-worker-head", {}, el("strong", {}, id), el("span.lu-worker-state"), el("span.lu-worker-mark")),
    el("button.lu-button", { type: "button" }),
    el("p.lu-worker-machine.lu-num"),
    el("p.lu-worker-model"),
    el("ul.lu-worker-shapes"),
    el("p.lu-worker-job.lu-num"),
    el("p.lu-worker-error"),
  );

function updateWorker(item, worker, { join, now_s }) {
  const { engine } = worker;
  const isGone = engine.state === "stopped";
  item.dataset.state = engine.state;
  const part = (name) => item.querySelector(`.lu-worker-${name}`);
  setText(part("state"), t(`engine.${engine.state}`));
  part("state").title = capitalized(said(engine, "activity"));
  setText(part("mark"), isGone ? "" : marksOf(worker).join(" · "));
  setText(part("machine"), machineText(worker, { isHere: isHere(worker, join), now_s }));
  setText(part("model"), engine.model ? t("workers.holds", { model: titleOf(engine.model) }) : isGone ? "" : t("workers.holdsNone"));
  drawShapes(part("shapes"), workers.length > 1 ? engine.shapes : {}); // of a single one, Models says it
  setText(part("job"), worker.jobs.map((job) => jobText(job, engine.model)).join("; "));
  setText(part("error"), engine.error ? errorText(saidCard(engine.error)) : "");
  drawButton(item.querySelector("button"), worker, isGone);
}

const errorText = ({ title, detail, advice }) => together(t("common.sentence", { text: title }), detail, advice);

const titleOf = (id) => modelOf(id)?.title ?? id;

function marksOf({ is_draining, is_pinned, jobs }) {
  const drained = is_draining ? [t(jobs.length ? "workers.draining" : "workers.drained")] : [];
  return [...drained, ...(is_pinned ? [t("workers.pinned")] : [])];
}

/** A cluster names the studio's own machine by its address, as all others. */
const isHere = ({ node }, join) => !node || Boolean(join?.startsWith(`${node}:`));

function machineText({ node, engine, machine }, { isHere, now_s }) {
  const silent_s = now_s - engine.heartbeat_at;
  return [
    isHere ? t("workers.here") : node,
    said(engine, "device"),
    machine.chip_price === null ? "" : t("workers.price", { price: moneyText(machine.chip_price * machine.chips) }),
    engine.heartbeat_at ? (silent_s > QUIET_S ? t("workers.silent", { time: wholeSeconds(silent_s) }) : t("workers.heard")) : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

function drawShapes(list, shapes) {
  const sizes = Object.entries(shapes ?? {}).filter(([name]) => !name.includes(" ")); // without programs for several at once
  const rows = sizes.sort(([, one], [, other]) => RANK[one] - RANK[other]);
  keyed(list, rows, {
    key: ([shape]) => shape,
    create: () => el("li"),
    update: (item, [shape, shapeState]) => {
      item.dataset.state = shapeState;
      setText(item, t("common.named", { name: shapeName(shape), value: STATES[shapeState] ?? shapeState }));
    },
  });
  list.hidden = !rows.length;
}

function jobText({ owner, model, phase, step, steps, eta_s }, held) {
  const isStepping = phase === "denoising" || phase === "training";
  return [
    model === held ? t("workers.runsIt") : t("workers.runs", { model: titleOf(model) }),
    isStepping ? t("progress.step", { step, steps }) : phase ? phaseName(phase) : "",
    eta_s === null ? "" : t("progress.left", { time: wholeSeconds(eta_s) }),
    owner === state.me?.owner ? "" : owner,
  ]
    .filter(Boolean)
    .join(" · ");
}

function drawButton(button, { id, is_draining }, isGone) {
  const what = isGone ? "forget" : is_draining ? "undrain" : "drain";
  button.hidden = isGone && id === "local";
  if (button.dataset.act === what) return;
  button.dataset.act = what;
  setText(button, t(`workers.${what}`));
  button.title = t(`workers.${what}Hint`);
  button.setAttribute("aria-label", t("common.named", { name: t(`workers.${what}`), value: id }));
}
