// REST, and the one shape of its errors. Paths are relative to the page, so a proxy's prefix does no harm.

import { parseJson } from "./json.js";
import { inOrder } from "./order.js";
import { named, t } from "./text.js";
import { said, saidFields } from "./translate_server.js";

export const at = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

export class ApiError extends Error {
  /** `fields` maps a recipe's field to what is wrong with it. All of it is told in the visitor's language. */
  constructor(error) {
    super(said(error, "detail"));
    this.title = said(error, "title");
    this.detail = this.message;
    this.advice = said(error, "advice");
    this.fields = saidFields(error);
    this.status = error.status ?? 0;
  }
}

async function call(method, path, body, headers = {}) {
  const { response, text } = await send(method, path, body, headers);
  return read(response, text);
}

/** A Blob goes as it is, anything else as JSON. */
async function send(method, path, body, headers = {}) {
  const isJson = body !== undefined && !(body instanceof Blob);
  try {
    const response = await fetch(at(path), {
      method,
      headers: isJson ? { ...headers, "Content-Type": "application/json" } : headers,
      body: isJson ? JSON.stringify(body) : body,
    });
    return { response, text: await response.text() };
  } catch {
    throw unreachable();
  }
}

const unreachable = () =>
  new ApiError({
    title: t("api.noConnection"),
    detail: t("api.noAnswer"),
    advice: t("api.noAnswerAdvice"),
  });

/** `answer` is a Response, or a request that has ended: both have a status and its text. */
function read({ status, statusText }, text) {
  let json = null;
  try {
    json = text ? parseJson(text) : null;
  } catch {
    // A proxy's error page: the status says what there is to say.
  }
  if (status >= 200 && status < 300) return json;
  const error = json?.error ?? {};
  throw new ApiError({
    ...error,
    title: error.title ?? t("api.refused"),
    detail: error.detail ?? `${status} ${statusText}`.trim(),
    status,
  });
}

/** @param {AbortSignal} [signal] ends it: nothing of the file is kept then */
export function uploadPicture(file, onPercent, signal) {
  const form = new FormData();
  form.append("file", file);
  return upload("api/v1/uploads", form, onPercent, signal);
}

/**
 * A video to learn from: the body is the file itself, which may be too long for a form.
 * @param {AbortSignal} [signal] ends it: nothing of the file is kept then
 */
export const uploadClip = (file, onPercent, signal) => upload("api/v1/clips", file, onPercent, signal);

export const uploadLora = (file, onPercent) => upload(`${LORAS}?${new URLSearchParams({ name: file.name })}`, file, onPercent);

let uploads = 0; // on their way

/** Leaving the page would end them: the browser asks whether to. */
const hold = (event) => event.preventDefault();

function countUploads(change) {
  uploads += change;
  if (uploads) addEventListener("beforeunload", hold);
  else removeEventListener("beforeunload", hold);
}

/** `onPercent` follows the file on its way, which fetch cannot tell; rejects once `signal` ends it. */
function upload(path, body, onPercent, signal = null) {
  countUploads(1);
  return transfer(path, body, onPercent, signal).finally(() => countUploads(-1));
}

function transfer(path, body, onPercent, signal) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    signal?.addEventListener("abort", () => request.abort());
    request.onabort = () => reject(signal.reason);
    request.upload.onprogress = ({ loaded, total }) => onPercent(Math.round((100 * loaded) / total));
    request.onerror = () => reject(unreachable());
    request.onload = () => {
      try {
        resolve(read(request, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    request.open("POST", at(path));
    request.send(body);
  });
}

/** The recipe inside a file, fitted to `model` where the file's own is not here. */
export async function readFileRecipe(file, model) {
  const form = new FormData();
  form.append("file", file);
  let response;
  try {
    const path = `api/v1/recipes/read${model ? `?model=${encodeURIComponent(model)}` : ""}`;
    response = await fetch(at(path), { method: "POST", body: form });
  } catch {
    throw unreachable();
  }
  return read(response, await response.text());
}

const isUpload = (id) => id.startsWith("upload-");

/** A recipe's input by its id: an upload, or an output. */
export const inputThumbPath = (id) => `api/v1/${isUpload(id) ? "uploads" : "outputs"}/${encodeURIComponent(id)}/thumb`;

/** Of a picture or clip itself. */
export const inputPath = (id) =>
  isUpload(id) ? `api/v1/uploads/${encodeURIComponent(id)}` : `api/v1/outputs/${encodeURIComponent(id)}/file`;

const JOBS = "api/v1/jobs";
const LORAS = "api/v1/loras";

export const previewPath = (id) => `${JOBS}/${encodeURIComponent(id)}/preview.jpg`;
export const readMe = () => call("GET", "api/v1/me");
export const readHealth = inOrder(() => dated(call("GET", "api/v1/health")));
export const readLoras = inOrder(() => call("GET", LORAS));
export const loraFile = (ref) => at(`${LORAS}/${encodeURIComponent(ref)}/file`);
export const deleteLora = (ref) => call("DELETE", `${LORAS}/${encodeURIComponent(ref)}`);
export const readModels = inOrder(async () => withNames(await call("GET", "api/v1/models")));

/** How much the first job of a model would bring, and how much room there is. */
export const readDownload = (id) => call("GET", `api/v1/models/${encodeURIComponent(id)}/download`);

const MODEL_FILES = "api/v1/models";
const modelPath = (id) => `${MODEL_FILES}/${encodeURIComponent(id)}`;
/** A checkpoint in one file: it becomes a model. */
export const uploadModel = (file, onPercent) =>
  upload(`${MODEL_FILES}?${new URLSearchParams({ name: file.name })}`, file, onPercent);
export const addRepository = (repo) => call("POST", `${MODEL_FILES}/repositories`, { repo });
export const fetchLoras = (preset) => call("POST", `api/v1/presets/${encodeURIComponent(preset)}/loras`);
export const bringModel = (place) => call("POST", `${MODEL_FILES}/arrivals`, place);
export const continueArrival = (id) => call("POST", `${MODEL_FILES}/arrivals/${encodeURIComponent(id)}`);
export const stopArrival = (id) => call("DELETE", `${MODEL_FILES}/arrivals/${encodeURIComponent(id)}`);
export const readModelFiles = inOrder(() => call("GET", `${MODEL_FILES}/files`));
export const askAccess = (id) => call("GET", `${modelPath(id)}/access`);
export const startDownload = (id) => call("POST", `${modelPath(id)}/download`);
export const pauseDownload = (id) => call("DELETE", `${modelPath(id)}/download`);
export const deleteModelFiles = (id) => call("DELETE", `${modelPath(id)}/files`);
export const removeModel = (id) => call("DELETE", modelPath(id));
export const chooseDefault = (model) => call("PUT", `${MODEL_FILES}/default`, { model });
export const keepHubToken = (token) => call("PUT", `${MODEL_FILES}/token`, { token });
export const forgetHubToken = () => call("DELETE", `${MODEL_FILES}/token`);

/**
 * Models as they are called here, and what else is told of them.
 * @param {any} answer
 */
function withNames({ models, ...rest }) {
  const called = ({ title, description, knows, ...model }) => ({
    ...model,
    title: named(title),
    description: named(description),
    knows: named(knows),
  });
  return { ...rest, models: models.map(called) };
}

/** With `asked_ms`, when it was asked for: events may overtake an answer. */
async function dated(answer) {
  const asked_ms = performance.now();
  return { ...(await answer), asked_ms };
}

export const readJobs = (jobState) => datedJobs(call("GET", jobState ? `${JOBS}?state=${jobState}&limit=500` : JOBS));

async function datedJobs(answer) {
  const { jobs, asked_ms } = await dated(answer);
  return jobs.map((job) => ({ ...job, asked_ms }));
}

export const readEveryonesJobs = (jobState) => datedJobs(call("GET", `${JOBS}?state=${jobState}&limit=500&everyone=true`));
export const readJob = (id) => dated(call("GET", `${JOBS}/${encodeURIComponent(id)}`));
/** `preset` is the id of the one that the settings came from, if any. */
export const submitJob = (recipe, preset = null) => call("POST", JOBS + ofPreset(preset), recipe);
export const submitJobs = (sweep, preset = null) => call("POST", `${JOBS}/many${ofPreset(preset)}`, sweep);
const ofPreset = (preset) => (preset ? `?preset=${encodeURIComponent(preset)}` : "");
export const countSweep = (sweep) => call("POST", "api/v1/expand", sweep);
export const readPrompt = (question) => call("POST", "api/v1/prompts/read", question);
export const countGrid = (grid) => call("POST", "api/v1/grids/expand", grid);
export const readGrids = (limit) => call("GET", `api/v1/grids?limit=${limit}`);
export const submitGrid = (grid) => call("POST", "api/v1/grids", grid);
export const estimateJob = (recipe) => call("POST", "api/v1/estimate", recipe);
export const cancelJob = (id) => call("DELETE", `${JOBS}/${encodeURIComponent(id)}`);
export const retryJob = (id) => call("POST", `${JOBS}/${encodeURIComponent(id)}/retry`);
export const editJob = (id, recipe) => dated(call("PATCH", `${JOBS}/${encodeURIComponent(id)}`, recipe));
export const duplicateJob = (id) => call("POST", `${JOBS}/${encodeURIComponent(id)}/duplicate`);
export const moveJob = (id, before) => call("POST", `${JOBS}/${encodeURIComponent(id)}/move`, { before });
export const cancelJobs = (scope) => call("POST", `${JOBS}/cancel`, { scope });
export const clearJobs = () => call("POST", `${JOBS}/clear`);
export const readQueue = () => dated(call("GET", "api/v1/queue"));
export const pauseQueue = () => dated(call("POST", "api/v1/queue/pause"));
export const resumeQueue = () => dated(call("POST", "api/v1/queue/resume"));
export const readWebhook = () => call("GET", "api/v1/webhook");
export const setWebhook = (url) => call("PUT", "api/v1/webhook", { url });
export const removeWebhook = () => call("DELETE", "api/v1/webhook");
export const pingWebhook = () => call("POST", "api/v1/webhook/ping");

const SYSTEM = "api/v1/system";

export const readSystem = inOrder(() => call("GET", SYSTEM));
export const readDisk = inOrder(() => call("GET", `${SYSTEM}/disk`));
export const readCache = inOrder(() => call("GET", `${SYSTEM}/cache`));
export const clearCache = (what, anyway) => call("POST", `${SYSTEM}/cache/clear`, { what, anyway });
export const readLog = inOrder(() => call("GET", `${SYSTEM}/log`));
export const readUsage = inOrder(() => call("GET", `${SYSTEM}/usage`));
const WORKERS = "api/v1/workers";
export const readWorkers = inOrder(() => call("GET", WORKERS));
export const drainWorker = (id, isDraining) =>
  call("POST", `${WORKERS}/${encodeURIComponent(id)}/${isDraining ? "drain" : "undrain"}`);
export const forgetWorker = (id) => call("DELETE", `${WORKERS}/${encodeURIComponent(id)}`);
const WILDCARDS = "api/v1/wildcards";
const wildcardPath = (name) => `${WILDCARDS}/${name.split("/").map(encodeURIComponent).join("/")}`;
export const listWildcards = inOrder(() => call("GET", WILDCARDS));
export const readWildcard = (name) => call("GET", wildcardPath(name));
export const saveWildcard = (name, lines) => call("PUT", wildcardPath(name), { lines });
export const deleteWildcard = (name) => call("DELETE", wildcardPath(name));
const ACCOUNT = "api/v1/account";
const USERS = "api/v1/users";

export const readAccount = inOrder(() => call("GET", ACCOUNT));
export const changePassword = (current, password) => call("PUT", `${ACCOUNT}/password`, { current, password });
export const makeToken = (name, current) => call("POST", `${ACCOUNT}/tokens`, { name, current });
export const revokeToken = (id) => call("DELETE", `${ACCOUNT}/tokens/${encodeURIComponent(id)}`);
export const listUsers = inOrder(() => call("GET", USERS));
export const addUser = (user) => call("POST", USERS, user);
export const resetPassword = (name, password) => call("PUT", `${USERS}/${encodeURIComponent(name)}/password`, { password });
export const removeUser = (name) => call("DELETE", `${USERS}/${encodeURIComponent(name)}`);
export const readTopologies = () => call("GET", `${SYSTEM}/topologies`);
export const readPlan = (wanted) => call("GET", `${SYSTEM}/plan?${new URLSearchParams(wanted)}`);
export const makePlan = (wanted) => call("POST", `${SYSTEM}/plan`, wanted);
export const cancelPlan = () => call("DELETE", `${SYSTEM}/plan`);

const TRAININGS = "api/v1/trainings";
const trainingPath = (id) => `${TRAININGS}/${encodeURIComponent(id)}`;
export const readTrainings = inOrder(() => dated(call("GET", `${TRAININGS}?limit=200`)));
export const readTrainingChoices = inOrder(() => call("GET", `${TRAININGS}/choices`));
export const readTraining = (id) => dated(call("GET", trainingPath(id)));
export const submitTraining = (asked) => call("POST", TRAININGS, asked);
export const pauseTraining = (id) => dated(call("POST", `${trainingPath(id)}/pause`));
export const continueTraining = (id) => dated(call("POST", `${trainingPath(id)}/continue`));
export const deleteTraining = (id) => call("DELETE", trainingPath(id));

const PRESETS = "api/v1/presets";

export const presetPath = (id) => `${PRESETS}/${encodeURIComponent(id)}`;
export const readStyles = () => call("GET", "api/v1/styles");
export const readPreset = (id) => call("GET", presetPath(id));
export const savePreset = (preset) => call("POST", PRESETS, preset);
export const deletePreset = (id) => call("DELETE", presetPath(id));
export const checkPreset = (json) => call("POST", `${PRESETS}/check`, new Blob([json]));
export const importPreset = (file, query) => call("POST", `${PRESETS}/import?${new URLSearchParams(query)}`, file);

export function readPresets(wanted) {
  const query = Object.entries(wanted).filter(([, value]) => value);
  return call("GET", `${PRESETS}?${new URLSearchParams(query)}`);
}

const OUTPUTS = "api/v1/outputs";

export const zipPath = `${OUTPUTS}/zip`;
export const readFilters = inOrder((everyone) => call("GET", `${OUTPUTS}/filters${everyone ? "?everyone=true" : ""}`));
export const readOutput = (id) => dated(call("GET", `${OUTPUTS}/${encodeURIComponent(id)}`));
export const comparePixels = (id, other) =>
  call("GET", `${OUTPUTS}/${encodeURIComponent(id)}/compare/${encodeURIComponent(other)}`);
export const changeOutput = (id, values) => dated(call("PATCH", `${OUTPUTS}/${encodeURIComponent(id)}`, values));
// These three resolve to the ids of the outputs that were changed.
export const trashOutputs = (ids) => changeMany("trash", ids);
export const restoreOutputs = (ids) => changeMany("restore", ids);

/** Deletes these of the trash, or all of it when `ids` is null. */
export const purgeOutputs = (ids) => changeMany("purge", ids);

const changeMany = async (action, ids) => (await call("POST", `${OUTPUTS}/${action}`, { ids })).ids;

export async function findOutputs(wanted) {
  const query = Object.entries(wanted).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const { outputs, asked_ms, ...found } = await dated(call("GET", `${OUTPUTS}?${new URLSearchParams(query)}`));
  return { ...found, outputs: outputs.map((output) => ({ ...output, asked_ms })) };
}

/** A link as the text of an SVG. */
export async function drawCode(link) {
  const { response, text } = await send("POST", "api/v1/qr", { link });
  if (!response.ok) read(response, text);
  return text;
}

/** `repo` is "account/name"; the token goes along and is kept nowhere. */
const callHub = (method, { repo, token }, path = "", body = undefined) =>
  call(method, `api/v1/hub/${repo}${path}`, body, token ? { "X-Hub-Token": token } : {});

export const listHub = (place) => callHub("GET", place);
export const pullFromHub = (place, names) => callHub("POST", place, "/pull", { names });
export const pushToHub = (place, ids) => callHub("POST", place, "/push", { ids });
