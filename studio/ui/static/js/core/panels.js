// When the panels are there: Gradio puts them into the page, some time after the scripts begin.

const LAST_PANEL = "lu-toasts"; // panels are rendered in order

export function whenPanelsStand(start) {
  if (document.getElementById(LAST_PANEL)) return start();
  const observer = new MutationObserver(() => {
    if (!document.getElementById(LAST_PANEL)) return;
    observer.disconnect();
    start();
  });
  observer.observe(document.documentElement, { childList: true, subtree: true });
  return undefined;
}
