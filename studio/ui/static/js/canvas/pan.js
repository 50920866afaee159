// The enlarged picture nearer and farther: the wheel zooms where it points, dragging moves, one button shows pixel for
// pixel. Not here: the dialog around it (zoom.js).

const NEAREST = 8; // times the window
const SPEED = 0.0015; // for each pixel of the wheel

let at = { scale: 1, x: 0, y: 0 }; // px from the window's middle
let media = null;
let whole = null; // the button
let drag = null; // where a hand took hold
let isMoved = false;

export function mountPan(dialog, button) {
  whole = button;
  dialog.addEventListener("wheel", wheel, { passive: false });
  dialog.addEventListener("pointerdown", take);
  dialog.addEventListener("pointermove", move);
  for (const name of ["pointerup", "pointercancel"]) dialog.addEventListener(name, () => (drag = null));
  button.addEventListener("click", () => (isWhole() ? fitPicture() : zoomTo(wholeScale(), 0, 0)));
}

/** Begins with a picture that fits the window; a video has controls of its own where people would drag. */
export function panPicture(element) {
  media = element.localName === "img" ? element : null;
  whole.hidden = !media;
  fitPicture();
}

/** Whether a click on the picture was the end of a drag. */
export const wasDragged = () => isMoved;

function fitPicture() {
  at = { scale: 1, x: 0, y: 0 };
  draw();
}

/** At which scale a pixel of the picture is one of the screen. */
const wholeScale = () => (media.naturalWidth || media.offsetWidth) / devicePixelRatio / media.offsetWidth;

const isWhole = () => Math.abs(at.scale / wholeScale() - 1) < 0.001;

function wheel(event) {
  if (!media) return;
  event.preventDefault();
  const [x, y] = [event.clientX - innerWidth / 2, event.clientY - innerHeight / 2];
  const nearest = Math.max(NEAREST, 4 * wholeScale());
  const scale = Math.min(nearest, Math.max(Math.min(1, wholeScale()), at.scale * Math.exp(-SPEED * event.deltaY)));
  zoomTo(scale, x, y);
}

/** What lies at `x`, `y` stays there. */
function zoomTo(scale, x, y) {
  if (!media) return;
  const factor = scale / at.scale;
  at = { scale, x: x - (x - at.x) * factor, y: y - (y - at.y) * factor };
  draw();
}

function take(event) {
  isMoved = false;
  if (!media || event.target !== media || event.button !== 0) return;
  event.preventDefault(); // or the browser drags the picture as a file
  drag = { x: event.clientX - at.x, y: event.clientY - at.y, from: [event.clientX, event.clientY] };
  media.setPointerCapture(event.pointerId);
}

function move(event) {
  if (!drag) return;
  const [x, y] = drag.from;
  if (!isMoved && Math.hypot(event.clientX - x, event.clientY - y) < 4) return; // a click that trembles
  isMoved = true;
  at = { ...at, x: event.clientX - drag.x, y: event.clientY - drag.y };
  draw();
}

/** Never so far that nothing of it is in sight. */
function draw() {
  if (!media) return;
  const room = (side, space) => Math.max(0, (side * at.scale - space) / 2);
  const [across, down] = [room(media.offsetWidth, innerWidth), room(media.offsetHeight, innerHeight)];
  at.x = Math.min(across, Math.max(-across, at.x));
  at.y = Math.min(down, Math.max(-down, at.y));
  media.style.transform = `translate(${at.x}px, ${at.y}px) scale(${at.scale})`;
  media.dataset.near = String(at.scale > 1);
}
