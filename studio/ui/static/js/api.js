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
    throw new ApiError({
      title: "No connection",
      detail: "The server does not answer.",
      advice: "It is tried again by itself; check that it runs.",
    });
  }
  const text = await response.text();
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's error page: the status says what there is to say.
  }
  if (response.ok) return json;
  const error = json?.error ?? {};
  throw new ApiError({
    title: error.title ?? "The server refused this",
    detail: error.detail ?? `${response.status} ${response.statusText}`.trim(),
    advice: error.advice,
    fields: error.fields,
    status: response.status,
  });
}

const JOBS = "api/v1/jobs";

export const previewPath = (id) => `${JOBS}/${encodeURIComponent(id)}/preview.jpg`;
export const readHealth = () => call("GET", "api/v1/health");
export const readModels = () => call("GET", "api/v1/models");
export const readJobs = (jobState) => call("GET", jobState ? `${JOBS}?state=${jobState}` : JOBS);
export const readJob = (id) => call("GET", `${JOBS}/${encodeURIComponent(id)}`);
export const submitJob = (recipe) => call("POST", JOBS, recipe);
export const cancelJob = (id) => call("DELETE", `${JOBS}/${encodeURIComponent(id)}`);
export const retryJob = (id) => call("POST", `${JOBS}/${encodeURIComponent(id)}/retry`);
