// When the panels are there: Gradio puts those that show at first into the page, some time after the scripts begin; the
// others come as a file of their own, which the page's head asked for (studio/ui/page.py).

const LAST_PANEL = "lu-toasts"; // panels are rendered in order

const lastPanel = () => document.getElementById(LAST_PANEL);

const stand = new Promise((resolve) => {
  if (lastPanel()) return resolve();
  const observer = new MutationObserver(() => {
    if (!lastPanel()) return;
    observer.disconnect();
    resolve();
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
  return undefined;
});

const RETRY_MS = 2000;

/** The later panels' markup; a server that is away or refuses for a moment is asked again. */
async function readLater(answer = globalThis.lumeshPanels) {
  const found = await answer.catch(() => null);
  if (found?.ok) return found.text();
  await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  return readLater(fetch(new URL("../panels.html", import.meta.url)));
}

const all = Promise.all([readLater(), stand]).then(([later]) => lastPanel().insertAdjacentHTML("beforebegin", later));

/** `start()` is called when all panels are there, in the order of asking. */
export const whenPanelsStand = (start) => all.then(start);
