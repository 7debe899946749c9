// What the model may do to this page.
const COLOURS = {
  red: [25, 0.15], orange: [55, 0.12], yellow: [95, 0.1], green: [150, 0.11], teal: [190, 0.085], blue: [255, 0.13],
  purple: [305, 0.14], pink: [355, 0.14], grey: [260, 0.008],
};

export const TOOLS = [
  {
    type: "function",
    name: "set_page_colour",
    description: "Change the colour of the web page. Only when the user asks for another colour of the page.",
    parameters: {
      type: "object",
      properties: { colour: { type: "string", enum: Object.keys(COLOURS) } },
      required: ["colour"],
    },
  },
];

/** Do what a call asks for; the text that goes back to the model. */
export function run(name, args) {
  let colour;
  try {
    ({ colour } = JSON.parse(args));
  } catch {
    return "The arguments were not JSON.";
  }
  if (name !== "set_page_colour" || !Object.hasOwn(COLOURS, colour)) return `There is no ${name} for ${colour}.`;
  const [hue, chroma] = COLOURS[colour];
  document.documentElement.style.setProperty("--hue", hue);
  document.documentElement.style.setProperty("--chroma", chroma);
  document.documentElement.dataset.colour = colour;
  return `The page is ${colour} now.`;
}
