// What the check of the page's scripts cannot know by itself: which element a selector finds, what Python leaves for the
// scripts, what the page adds to a job. Which element an id is, and the fields of REST, __main__.py writes from Python.

/** [English, the same in the visitor's language]. */
type ServerMessage = [string, string | Record<string, string>];

declare var lumeshPanels: Promise<Response>;
declare var lumeshText: Promise<{
  name: string;
  tag: string;
  messages: Record<string, string | Record<string, string>>;
  server: ServerMessage[];
  shipped: Record<string, string>;
}>;

/** What was typed before the scripts were there, until `stop` (studio/ui/first_script.py). */
declare var lumeshEarly: { text: string; submits: boolean; stop(): void } | undefined;

type Tags = HTMLElementTagNameMap & Omit<SVGElementTagNameMap, keyof HTMLElementTagNameMap>;

/** "#lu-x button.lu-y[data-z]" ends in "button". */
type TagOf<S extends string> = S extends `${string} ${infer Rest}`
  ? TagOf<Rest>
  : S extends `${infer Tag}${"["}${string}`
    ? TagOf<Tag>
    : S extends `${infer Tag}${"."}${string}`
      ? TagOf<Tag>
      : S extends `${infer Tag}${":"}${string}`
        ? TagOf<Tag>
        : S extends `${infer Tag}${"#"}${string}`
          ? TagOf<Tag>
          : S;

/** Events of an element: what listens is `currentTarget`, what was touched is some element in it. */
type Listening<E> = {
  addEventListener<K extends keyof HTMLElementEventMap>(
    type: K,
    listener: (event: HTMLElementEventMap[K] & { readonly target: HTMLElement; readonly currentTarget: E }) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
} & E;

interface Document {
  addEventListener<K extends keyof DocumentEventMap>(
    type: K,
    listener: (event: DocumentEventMap[K] & { readonly target: HTMLElement }) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
}

/** What a selector finds: the tag's element where it ends in a tag, else any HTML element. */
type Selected<S extends string> = Listening<TagOf<S> extends keyof Tags ? Tags[TagOf<S>] : HTMLElement>;

interface ParentNode {
  querySelector<S extends string>(selectors: S): Selected<S> | null;
  querySelectorAll<S extends string>(selectors: S): NodeListOf<Selected<S>>;
}

interface Element {
  closest<S extends string>(selectors: S): Selected<S> | null;
}

/** An id of which the whole is known must be on the page; of one put together at run time nothing is known. */
interface Find {
  <K extends keyof PageElements>(id: K): PageElements[K];
  <K extends string>(id: {} extends Record<K, 1> ? K : never): any;
}

/** What serviceworker.js uses of its global scope; TypeScript's own types of it cannot stand beside those of a page. */
interface NotificationWorker {
  addEventListener(
    type: "notificationclick",
    listener: (event: { notification: Notification; waitUntil(work: Promise<unknown>): void }) => void,
  ): void;
  readonly clients: {
    matchAll(options: { type: "window"; includeUncontrolled: boolean }): Promise<{ focus(): Promise<unknown> }[]>;
    openWindow(url: string): Promise<unknown>;
  };
  readonly registration: { readonly scope: string };
}

/** What the page notes of a job, beside what the server says. */
interface Job {
  preview_url?: string;
  received_ms?: number;
  running_ms?: number;
  asked_ms?: number; // when the answer was asked for
  known_ms?: number; // as of when this is known
  sheet?: any; // the output, where a grid's sheet is shown as a job
}
