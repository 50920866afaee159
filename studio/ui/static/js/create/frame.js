// How a picture fills a size of other proportions, as pipelines/pictures/fitting.py does it: the nearest size, what lies outside,
// and where both stand on the picture's square tile.

const TOLD_SHARE = 0.01; // less is what rounding of sizes costs

const ratioOf = ({ width, height }) => width / height;

/** The shape of the nearest proportions; of several, the one most like `like` in frames and area. */
export function nearestShape(shapes, picture, like) {
  const judge = (shape) => [
    Math.round(1000 * Math.abs(Math.log(ratioOf(picture) / ratioOf(shape)))),
    Math.abs(shape.frames - like.frames),
    Math.abs(shape.width * shape.height - like.width * like.height),
  ];
  const isBetter = (one, other) => {
    const place = one.findIndex((value, index) => value !== other[index]);
    return place >= 0 && one[place] < other[place];
  };
  return shapes.reduce((best, shape) => (isBetter(judge(shape), judge(best)) ? shape : best));
}

/** What pictures are fitted to: the chosen shape, or for references the model's nearest to the first picture. */
export const frameOf = (model, chosen, first) => (model.has_references && first ? nearestShape(model.shapes, first, chosen) : chosen);

/** The share of the picture that cropping cuts off; 0 where nobody would see it. */
export function outsideOf(picture, frame) {
  const ratio = ratioOf(picture) / ratioOf(frame);
  const share = 1 - Math.min(ratio, 1 / ratio);
  return share < TOLD_SHARE ? 0 : share;
}

/** Width and height of picture and frame, each as a share of a square tile's side. */
export function boxesOf(picture, frame, fit) {
  const [own, wanted] = [ratioOf(picture), ratioOf(frame)];
  if (fit === "stretch") return { picture: within(wanted), frame: within(wanted) };
  const outer = within(fit === "pad" ? wanted : own);
  const ratio = fit === "pad" ? own : wanted;
  const scale = Math.min(outer.width / ratio, outer.height); // the height of what stands in the outer one
  const inner = { width: scale * ratio, height: scale };
  return fit === "pad" ? { picture: inner, frame: outer } : { picture: outer, frame: inner };
}

/** The largest box of these proportions within a square. */
const within = (ratio) => ({ width: Math.min(1, ratio), height: Math.min(1, 1 / ratio) });
