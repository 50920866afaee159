// The System view: asks for what its shown tab needs, while it is shown, and only then. Not here: the tabs (tabs.js), plans
// for other chips (systemplan.js), workers (workers.js), models' files (modelfiles.js), LoRA files (lorafiles.js), wildcards (wildcards.js), users (users.js).

import { clearCache, readCache, readDisk, readLog, readSystem, readUsage } from "../core/api.js";
import { el, find, keyed, setText } from "../core/dom.js";
import { ago, bytes, capitalized, chipSeconds, moneyText, seconds, shapeName, STATES, swapParts } from "../core/format.js";
import { isOperator, onChange, state } from "../core/store.js";
import { has, locale, named, t, together } from "../core/text.js";
import { toast } from "../core/toasts.js";
import { said } from "../core/translate_server.js";
import { isShown } from "../core/views.js";
import { mountLoraFiles, openLoraFiles } from "./lorafiles.js";
import { drawModelFiles, mountModelFiles } from "./modelfiles.js";
import { mountPlan, openPlan } from "./systemplan.js";
import { mountTabs, shownTab } from "./tabs.js";
import { mountUsers, openUsers } from "./users.js";
import { mountWildcards, openWildcards } from "./wildcards.js";
import { chosenWorker, drawWorkers, havePricesOfTheirOwn, mountWorkers } from "./workers.js";

const LIVE_MS = 2000; // as often as the worker measures
const SLOW_MS = 15_000; // folders are walked for it
const STALE_S = 15;
const EVERYBODY = "local"; // the owner of everything, as long as nobody logs in

/** Of each tab: what is asked once it is opened, as often as the worker measures, and seldom. */
const ASKED = {
  devices: { live: [drawDevices], seldom: [drawUsage] },
  models: { live: [drawModelsTab] },
  storage: { seldom: [drawCache, drawDisk] },
  loras: { once: [openLoraFiles, openWildcards] },
  plan: { once: [openPlan] },
  log: { seldom: [drawSystem, drawLog] },
  users: { once: [openUsers] },
};

let slowAt_ms = -Infinity;
let hasOpened = false;

export function mountSystem() {
  find("lu-system").addEventListener("click", (event) => {
    const what = event.target.closest("[data-clear]")?.dataset.clear;
    if (what) clear(what);
  });
  find("lu-sys-log-read").addEventListener("click", () => drawLog().catch(say));
  mountPlan();
  mountWildcards();
  mountLoraFiles();
  mountModelFiles();
  mountUsers();
  mountWorkers((error) => (error ? say(error) : refresh()));
  mountTabs(open);
  setInterval(() => isShown("system") && !document.hidden && refresh(), LIVE_MS);
  onChange(() => isShown("system") && !hasOpened && open()); // it was opened before it was known who looks
}

/** The server answers operators alone; to others the page says so (me.js). */
const mayLook = () => state.me !== null && isOperator();

function open() {
  hasOpened = state.me !== null;
  if (!mayLook()) return;
  slowAt_ms = -Infinity;
  say(null);
  for (const start of ASKED[shownTab()].once ?? []) start();
  refresh();
}

/** Each part by itself: what the server does not answer, or not to everybody, stays as it is, and the message says why. */
async function refresh() {
  if (!mayLook()) return;
  const { live = [], seldom = [] } = ASKED[shownTab()];
  const isDue = performance.now() - slowAt_ms > SLOW_MS;
  if (isDue) slowAt_ms = performance.now();
  const parts = [...live, ...(isDue ? seldom : [])];
  if (!parts.length) return;
  const answers = await Promise.allSettled(parts.map((draw) => draw()));
  say(answers.find((answer) => answer.status === "rejected")?.reason ?? null);
}

function say(error) {
  setText(find("lu-system-message"), error ? together(error.message, error.advice) : "");
}

/** The workers first: whose devices are shown depends on them. */
async function drawDevices() {
  await drawWorkers();
  await drawSystem();
}

/** The cards first, then what each says of its files. */
async function drawModelsTab() {
  await drawSystem();
  await drawModelFiles();
}

async function drawSystem() {
  const { models, unusable, versions, worker_log, ...first } = await readSystem();
  const { engine, machine } = chosenWorker() ?? first;
  const now_s = Date.now() / 1000;
  const isStale = now_s - machine.measured_at > STALE_S;
  setText(find("lu-system-note"), isStale ? measuredAt(machine.measured_at, now_s) : "");
  setText(find("lu-sys-device"), said(engine, "device") || t("system.starting"));
  drawMeters(machine);
  const titleOf = (id) => named(models.find((model) => model.id === id)?.title);
  drawFacts("lu-sys-machine", [
    [t("system.worker"), engine.activity ? capitalized(said(engine, "activity")) : t(`engine.${engine.state}`)],
    [t("system.resident"), titleOf(engine.model) ?? t("system.none")],
    ...(engine.swap ? [[t("system.lastSwap"), swapText(engine.swap, titleOf)]] : []),
    [t("system.mesh"), machine.mesh || "–"],
    [t("system.atOnce"), String(engine.outputs_at_once)],
    [t("plan.chips"), String(machine.chips)],
    [t("system.weights"), t(`weights.${first.weights}`)],
    ...(first.kernels ? [[t("system.kernels"), said(first, "kernels")]] : []),
    [t("system.compiling"), machine.compiling ? t("system.count", { count: machine.compiling }) : t("system.nothing")],
  ]);
  drawModels(models);
  drawUnusable(unusable);
  drawFacts("lu-sys-versions", Object.entries(versions));
  setText(find("lu-sys-log-file"), worker_log);
}

const swapText = (swap, titleOf) =>
  t("system.swap", { model: titleOf(swap.model) ?? swap.model, time: seconds(swap.total_s), parts: swapParts(swap) });

const measuredAt = (at_s, now_s) => (at_s ? t("system.measured", { when: ago(at_s, now_s) }) : t("system.neverMeasured"));

const drawFacts = (id, rows) =>
  keyed(find(id), rows.flatMap(([name, value]) => [{ name }, { name, value }]), {
    key: (cell) => `${cell.name} ${"value" in cell}`,
    create: (cell) => ("value" in cell ? el("dd.lu-num") : el("dt", {}, cell.name)),
    update: (element, cell) => "value" in cell && setText(element, cell.value),
  });

function drawMeters({ devices, host }) {
  const rows = devices.map((device) => ({
    key: `device ${device.id}`,
    name: `${device.id} · ${said(device, "kind")}`,
    used: device.used_bytes,
    peak: device.peak_bytes,
    limit: device.limit_bytes,
  }));
  if (host.total_bytes)
    rows.push(
      { key: "worker", name: t("system.workerMemory"), used: host.worker_bytes, peak: null, limit: host.total_bytes },
      { key: "host", name: t("system.hostMemory"), used: host.used_bytes, peak: null, limit: host.total_bytes },
    );
  keyed(find("lu-sys-devices"), rows, {
    key: (row) => row.key,
    create: (row) =>
      el(
        "div.lu-sys-meter",
        {},
        el("span.lu-sys-meter-name", { title: row.name }, row.name),
        el("span.lu-num.lu-sys-meter-value"),
        el(
          "div.lu-sys-bar",
          { role: "meter", "aria-label": t("system.inUse", { name: row.name }), "aria-valuemin": 0 },
          el("i"),
        ),
      ),
    update: drawMeter,
  });
}

/** A CPU has no limit of its own: then there are only bytes. */
function drawMeter(element, { used, peak, limit }) {
  const now = limit ? t("system.usedOf", { used: bytes(used), limit: bytes(limit) }) : bytes(used);
  const text = peak === null ? now : t("system.atMost", { used: now, peak: bytes(peak) });
  setText(element.querySelector(".lu-sys-meter-value"), text);
  const bar = element.querySelector(".lu-sys-bar");
  bar.hidden = !limit;
  bar.setAttribute("aria-valuemax", String(limit ?? used));
  bar.setAttribute("aria-valuenow", String(used));
  bar.setAttribute("aria-valuetext", text);
  bar.style.setProperty("--done", limit ? Math.min(1, used / limit) : 0);
}

function drawModels(models) {
  keyed(find("lu-sys-models"), models, {
    key: (model) => model.id,
    create: (model) =>
      el(
        "div.lu-sys-model",
        { "data-model": model.id },
        el("p", {}, el("strong", {}, named(model.title)), el("span.lu-sys-resident")),
        el("p.lu-model-facts"),
        el("ul"),
        el("div.lu-model-acts"),
      ),
    update: (element, model) => {
      setText(element.querySelector(".lu-sys-resident"), model.is_resident ? ` ${t("system.inMemory")}` : "");
      keyed(element.querySelector("ul"), model.shapes, {
        key: ({ shape }) => shape,
        create: () => el("li"),
        update: drawShape,
      });
    },
  });
}

/** What lies in models/, or stands in models.toml, and is no model: nobody should have to guess why it is not listed. */
function drawUnusable(unusable) {
  find("lu-sys-unusable").hidden = !unusable.length;
  keyed(find("lu-sys-unusable-list"), unusable, {
    key: (one) => one.name,
    create: (one) => el("li", {}, el("strong", {}, one.name), el("span")),
    update: (item, one) => setText(item.querySelector("span"), together(said(one, "reason"), said(one, "advice"))),
  });
}

function drawShape(item, { shape, state, warm_s }) {
  const cost = warm_s ? ` · ${seconds(warm_s)}` : "";
  item.dataset.state = state;
  setText(item, `${t("common.named", { name: shapeName(shape), value: STATES[state] })}${cost}`);
}

// Caches

const CLEAR_QUESTIONS = {
  programs: "system.confirmPrograms",
  plans: "system.confirmPlans",
  layouts: "system.confirmLayouts",
  trainings: "system.confirmTrainings",
};

async function drawCache() {
  const caches = await readCache();
  for (const [name, cache] of Object.entries(caches)) {
    const held = t("system.cached", { size: bytes(cache.bytes), count: cache.files });
    setText(find(`lu-sys-${name}`), cache.is_compiling ? `${held} · ${t("system.compilingNow")}` : held);
  }
}

async function clear(what, anyway = false) {
  if (!anyway && !confirm(t(CLEAR_QUESTIONS[what]))) return;
  try {
    const freed = await clearCache(what, anyway);
    toast(t(freed.was_compiling ? "system.freedAnyway" : "system.freed", { size: bytes(freed.bytes) }));
    await Promise.all([drawCache(), drawDisk()]);
  } catch (error) {
    if (error.status !== 409 || ["layouts", "trainings"].includes(what)) return say(error);
    const title = t("common.sentence", { text: error.title });
    if (confirm(together(title, error.detail, t("system.clearAnyway")))) await clear(what, true);
  }
  return undefined;
}

// Tables

const drawRows = (id, rows) =>
  keyed(find(id), rows, {
    key: ({ key }) => key,
    create: ({ cells, title }) =>
      el("tr", { title }, ...cells.map((_, index) => (index ? el("td.lu-num") : el("th", { scope: "row" })))),
    update: (row, { cells }) => cells.forEach((cell, index) => setText(row.children[index], cell)),
  });

const partName = (name, holds) => {
  const id = `disk.${name.replace(" ", "_")}`;
  return has(id) ? t(id) : t("common.named", { name: capitalized(name), value: holds });
};

async function drawDisk() {
  const { parts, free_bytes, total_bytes } = await readDisk();
  const rows = parts.map(({ name, holds, path, files, bytes: size }) => ({
    key: name,
    title: path,
    cells: [partName(name, holds), files.toLocaleString(locale), bytes(size)],
  }));
  drawRows("lu-sys-disk", rows);
  setText(find("lu-sys-free"), t("system.free", { free: bytes(free_bytes), total: bytes(total_bytes) }));
}

async function drawUsage() {
  const { mine, owners, chip_price } = await readUsage();
  const rows = owners.length ? owners : [mine];
  const nameOf = (owner) => {
    if (owner === EVERYBODY) return t("system.everybody");
    return owner === mine.owner ? t("system.you", { owner }) : owner;
  };
  drawRows(
    "lu-sys-usage",
    rows.map(({ owner, jobs, chip_seconds, cost_usd }) => ({
      key: owner,
      cells: [nameOf(owner), jobs.toLocaleString(locale), chipSeconds(chip_seconds), moneyText(cost_usd)],
    })),
  );
  setText(
    find("lu-sys-price"),
    havePricesOfTheirOwn() ? t("workers.prices") : chip_price === null ? t("system.noPrice") : t("system.price", { price: moneyText(chip_price) }),
  );
}

/** The end stays in sight, unless somebody reads further up. */
async function drawLog() {
  const { lines } = await readLog();
  const log = find("lu-sys-log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 20;
  setText(log, lines.join("\n") || t("system.noLog"));
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}
