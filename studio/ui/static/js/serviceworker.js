// Runs beside the page, not in it: shows the page's notifications where only a service worker may, and brings the page
// back when one is tapped. It keeps and fetches nothing.

const worker = /** @type {NotificationWorker} */ (/** @type {unknown} */ (self));

worker.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(comeBack());
});

async function comeBack() {
  const pages = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  return pages.length ? pages[0].focus() : worker.clients.openWindow(worker.registration.scope);
}
