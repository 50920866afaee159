// What a model would need and take on other chips: chosen, made in the background, shown as a table. Everything in it is
// estimated by the TPU compiler, and says so.

import { cancelPlan, makePlan, readPlan, readTopologies } from "../core/api.js";
import { el, find, setText } from "../core/dom.js";
import { bytes, milliseconds, seconds, shapeName, wholeSeconds } from "../core/format.js";
import { phaseName } from "../core/progress.js";
import { isOperator, modelOf, onChange, state } from "../core/store.js";
import { t, together } from "../core/text.js";
import { said } from "../core/translate_server.js";
import { isShown } from "../core/views.js";

const ASK_MS = 1000;
const MODES = { latency: t("plan.latency"), throughput: t("plan.throughput") };
const COLUMNS = [
  t("plan.stage"),
  t("plan.fits"),
  t("plan.weights"),
  t("plan.working"),
  t("plan.code"),
  t("plan.total"),
  t("plan.compiling"),
  t("plan.estimated"),
  t("plan.kernels"),
  t("plan.exposed"),
];

let machines = null; // which can be planned for, and how the worker uses the one it runs on
let shown = ""; // which plan stands in the table
let timer = 0;
let asked = 0;

const chosen = () =>
  Object.fromEntries(["model", "shape", "topology", "mode"].map((name) => [name, find(`lu-plan-${name}`).value]));

export function mountPlan() {
  find("lu-plan-form").addEventListener("submit", start);
  find("lu-plan-form").addEventListener("change", (event) => {
    if (event.target === find("lu-plan-model")) fillShapes();
    if (event.target === find("lu-plan-topology")) chooseMode();
    look();
  });
  find("lu-plan-cancel").addEventListener("click", cancel);
  onChange(() => isShown("system") && !find("lu-plan-model").options.length && openPlan());
}

/** Choices first, as the worker runs; then whatever is known of what is chosen: nothing is compiled before the click. */
export async function openPlan() {
  if (!state.models.length || !isOperator()) return; // models come with the page's first answer, and who looks
  try {
    if (!find("lu-plan-topology").options.length) await fillChoices();
    await look();
  } catch (error) {
    say(error);
  }
}

async function fillChoices() {
  machines = await readTopologies();
  const { topologies, modes, here, default: first } = machines;
  const chips = topologies.filter((one) => one.is_tpu || one.name === here);
  fill("topology", chips.map(({ name, title }) => [name, name === here ? t("plan.these", { title }) : title]), first);
  fill("mode", modes.map((mode) => [mode, MODES[mode] ?? mode]), modes[0]);
  chooseMode();
  fill("model", state.models.map(({ id, title }) => [id, title]), state.engine?.model || state.models[0].id);
  fillShapes();
}

/** On this hardware a plan is of what the worker does, until somebody chooses otherwise. */
function chooseMode() {
  if (isHere()) find("lu-plan-mode").value = machines.here_mode;
}

const isHere = () => find("lu-plan-topology").value === machines.here;

function fillShapes() {
  const model = modelOf(find("lu-plan-model").value);
  fill("shape", model.shapes.map(({ shape }) => [shape, shapeName(shape, model.defaults.fps)]), model.defaults.shape);
}

function fill(name, items, value) {
  const select = find(`lu-plan-${name}`);
  select.replaceChildren(...items.map(([id, title]) => el("option", { value: id }, title)));
  select.value = value;
}

function say(error) {
  const fields = Object.values(error?.fields ?? {}).join(" ");
  setText(find("lu-plan-message"), error ? together(fields || error.message, error.advice) : "");
}

/** What is known of the chosen plan, without starting it; asks again as long as it is being made. */
async function look() {
  clearTimeout(timer);
  asked += 1;
  const mine = asked; // a later choice may be answered first
  try {
    const run = await readPlan(chosen());
    if (mine === asked) draw(run);
  } catch (error) {
    say(error);
  }
}

async function start(event) {
  event.preventDefault();
  say(null);
  try {
    await makePlan(chosen());
    await look();
    find("lu-plan-result").focus({ preventScroll: true });
  } catch (error) {
    say(error);
  }
}

async function cancel() {
  await cancelPlan().catch(say);
  await look();
}

function draw(run) {
  const isRunning = run.state === "running";
  const busy = isRunning ? run : run.other;
  find("lu-plan-run").hidden = !busy;
  find("lu-plan-start").disabled = Boolean(busy) || run.state === "done";
  if (isRunning) drawProgress(run.progress);
  else if (busy) drawOther(busy);
  say(run.state === "failed" ? new Error(said(run, "error")) : null);
  drawResult(run);
  if (busy && isShown("system")) timer = setTimeout(look, ASK_MS);
}

function drawProgress({ phase, done, total, elapsed_s }) {
  const count = total ? t("plan.stageOf", { stage: done + 1, total }) : "";
  setText(find("lu-plan-phase"), [phaseName(phase), count, wholeSeconds(elapsed_s)].filter(Boolean).join(" · "));
  drawBar(total ? done / total : 0);
}

function drawOther({ model, topology }) {
  setText(find("lu-plan-phase"), t("plan.other", { model: modelOf(model)?.title ?? model, topology }));
  drawBar(0);
}

function drawBar(fraction) {
  const bar = find("lu-plan-progress");
  bar.style.setProperty("--done", fraction);
  bar.setAttribute("aria-valuenow", String(Math.round(100 * fraction)));
}

function drawResult({ state: how, plan }) {
  const key = plan ? JSON.stringify([how, plan.model, plan.shape, plan.topology, plan.mode, plan.mesh, plan.weights]) : how;
  if (key === shown) return;
  shown = key;
  const texts = { unknown: t("plan.unknown"), cancelled: t("plan.cancelled") };
  const notes = [how === "shipped" && t("plan.shipped"), plan && isReadElsewhere(plan) && t("plan.remoteEncoder")];
  const content = plan ? [...tableOf(plan), ...notes.filter(Boolean).map(noteOf)] : texts[how] ? [noteOf(texts[how])] : [];
  find("lu-plan-result").replaceChildren(...content);
}

const noteOf = (text) => el("p.lu-model-note", {}, text);

const isReadElsewhere = ({ model }) => isHere() && machines.remote_text_encoders.includes(model);

const duration = (s) => (s < 1 ? milliseconds(1000 * s) : seconds(s));

function tableOf(plan) {
  const total = plan.estimated_total_s;
  const isMany = plan.batch_size > 1;
  const resident = bytes(plan.placement.resident_bytes);
  const facts = [
    t("plan.mesh", { mesh: plan.mesh }),
    plan.weights !== "full" && t(`weights.${plan.weights}`),
    isMany && t("plan.atOnce", { count: plan.batch_size }),
    plan.hbm_limit_bytes
      ? t("plan.usedOf", { used: resident, limit: bytes(plan.hbm_limit_bytes) })
      : t("plan.used", { used: resident }),
    total && t("plan.inAll", { time: duration(total) }),
    isMany && total && t("plan.each", { time: duration(total / plan.batch_size) }),
  ];
  const source = said(plan, "source");
  return [
    el(
      "p.lu-plan-verdict",
      { data: { fits: plan.fits } },
      el("strong", {}, t(plan.fits ? "plan.doesFit" : "plan.doesNotFit")),
      ` · ${facts.filter(Boolean).join(" · ")}`,
    ),
    el("p.lu-plan-verdict", {}, t("plan.nothingRun", { source })),
    el("p.lu-model-note", {}, said(plan.placement, "advice")),
    el(
      "div.lu-plan-scroll.lu-scroll",
      { tabindex: 0, role: "region", "aria-label": t("plan.byStage") },
      el(
        "table.lu-sys-table",
        {},
        el("caption.lu-sr", {}, `${source}: ${plan.model}, ${plan.shape}, ${plan.topology}`),
        el("thead", {}, el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, ...plan.stages.map(rowOf)),
      ),
    ),
    ...plan.stages.map(collectivesOf).filter(Boolean),
    ...plan.stages.filter(({ refusal }) => refusal).map(({ stage, refusal }) => el("p.lu-message", {}, t("common.named", { name: stageName(stage), value: refusal }))),
  ];
}

/** A program of a plan (pipelines/plan/abstract.py) in the visitor's language. */
const stageName = (stage) => t(`stage.${stage}`);

/** How often the chips wait for each other, or would if nothing was computed meanwhile. */
function collectivesOf({ stage, collectives }) {
  const counts = Object.entries(collectives).map(([kind, { count }]) => `${count} ${kind}`);
  return counts.length && el("p.lu-model-note", {}, t("common.named", { name: stageName(stage), value: counts.join(", ") }));
}

function rowOf({ stage, runs, fits, hbm_bytes, compile_s, estimated_ms, estimated_parts_ms: parts }) {
  const cells = [
    t(fits ? "plan.yes" : "plan.no"),
    ...["weights", "temp", "code", "total"].map((name) => bytes(hbm_bytes[name])),
    seconds(compile_s),
    ...[estimated_ms, parts && parts.attention + parts.convolutions, parts && parts.exposed_collectives].map((ms) =>
      ms === null ? "–" : milliseconds(ms),
    ),
  ];
  const name = runs > 1 ? `${stageName(stage)} × ${runs}` : stageName(stage);
  return el("tr", {}, el("th", { scope: "row" }, name), ...cells.map((cell) => el("td.lu-num", {}, cell)));
}
