// REST, and the one shape of its errors. Paths are relative to the page, so a proxy's prefix does no harm.

export const at = (path) => new URL(path.replace(/^\//, ""), document.baseURI).href;

export class ApiError extends Error {
  /** `fields` maps a recipe's field to what is wrong with it. */
  constructor({ title, detail, advice = "", fields = {}, status = 0 }) {
    super(detail);
    Object.assign(this, { title, detail, advice, fields, status });
  }
}

async function call(method, path, body) {
  let response;
  try {
    response = await fetch(at(path), {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw unreachable();
  }
  return read(response, await response.text());
}

const unreachable = () =>
  new ApiError({
    title: "No connection",
    detail: "The server does not answer.",
    advice: "It is tried again by itself; check that it runs.",
  });

/** `answer` is a Response, or a request that has ended: both have a status and its text. */
function read({ status, statusText }, text) {
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's error page: the status says what there is to say.
  }
  if (status >= 200 && status < 300) return json;
  const error = json?.error ?? {};
  throw new ApiError({
    title: error.title ?? "The server refused this",
    detail: error.detail ?? `${status} ${statusText}`.trim(),
    advice: error.advice,
    fields: error.fields,
    status,
  });
}

/** `onPercent` follows the file on its way, which fetch cannot tell. */
export function uploadPicture(file, onPercent) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.upload.onprogress = ({ loaded, total }) => onPercent(Math.round((100 * loaded) / total));
    request.onerror = () => reject(unreachable());
    request.onload = () => {
      try {
        resolve(read(request, request.responseText));
      } catch (error) {
        reject(error);
      }
    };
    const form = new FormData();
    form.append("file", file);
    request.open("POST", at("api/v1/uploads"));
    request.send(form);
  });
}

/** A recipe's input by its id: an upload, or an output. */
export const inputThumbPath = (id) =>
  `api/v1/${id.startsWith("upload-") ? "uploads" : "outputs"}/${encodeURIComponent(id)}/thumb`;

const JOBS = "api/v1/jobs";

export const previewPath = (id) => `${JOBS}/${encodeURIComponent(id)}/preview.jpg`;
export const readHealth = () => call("GET", "api/v1/health");
export const readModels = () => call("GET", "api/v1/models");
export const readJobs = (jobState) => call("GET", jobState ? `${JOBS}?state=${jobState}` : JOBS);
export const readJob = (id) => call("GET", `${JOBS}/${encodeURIComponent(id)}`);
export const submitJob = (recipe) => call("POST", JOBS, recipe);
export const cancelJob = (id) => call("DELETE", `${JOBS}/${encodeURIComponent(id)}`);
export const retryJob = (id) => call("POST", `${JOBS}/${encodeURIComponent(id)}/retry`);
