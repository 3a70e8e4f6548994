// Everyday prompts: thirty fixed questions, each with a check of how the answer must begin. The checks are lenient about case,
// quotes and Markdown emphasis, because they judge whether the instruction was followed, not whether the answer is right.

export interface EverydayPrompt {
  readonly text: string;
  /** Whether the first words of an answer follow the instruction. */
  readonly isFollowed: (opening: string) => boolean;
}

/** Returns a check that the answer begins with one of these words. */
function begins(...words: readonly string[]) {
  return (opening: string) => words.some((word) => new RegExp(`^${word}\\b`, "i").test(opening));
}

const yesOrNo = begins("yes", "no");
const trueOrFalse = begins("true", "false");
const number = (opening: string) => /^(?:\d|(?:one|two|three|four|five|six|seven|eight|nine|ten)\b)/i.test(opening);
const listItem = (opening: string) => /^(?:1[.)]|[-*•])/.test(opening);
/** Returns a check that the first line has at most this many words. */
const brief = (words: number) => (opening: string) => {
  const line = opening.split("\n", 1)[0] ?? "";
  return line !== "" && line.split(/\s+/).length <= words;
};
const mentions = (word: RegExp) => (opening: string) => word.test(opening);

export const everydayPrompts: readonly EverydayPrompt[] = [
  { text: "Is water wet? Answer yes or no.", isFollowed: yesOrNo },
  { text: "Answer only yes or no: is Paris in France?", isFollowed: yesOrNo },
  { text: "Can a dog fly? Begin your answer with Yes or No.", isFollowed: yesOrNo },
  { text: "True or false: the sun is a star.", isFollowed: trueOrFalse },
  { text: "Answer with True or False: two plus two is five.", isFollowed: trueOrFalse },
  { text: "What is 7 plus 5? Answer with a number only.", isFollowed: number },
  { text: "How many days are in a week? Reply with just the number.", isFollowed: number },
  { text: "How many legs does a spider have? Answer with a digit.", isFollowed: number },
  { text: "List three fruits as a numbered list. Begin with 1.", isFollowed: listItem },
  {
    text: "Give me a bulleted list of four things to pack for the beach.",
    isFollowed: mentions(/(^|\n)\s*(?:[-*•]|1[.)])/),
  },
  { text: "List the steps to make tea as a numbered list.", isFollowed: mentions(/(^|\n)\s*1[.)]/) },
  { text: "What is the capital of France?", isFollowed: mentions(/paris/i) },
  { text: "What is the capital of Italy? Answer in one word.", isFollowed: brief(3) },
  { text: "What color is the sky on a clear day? One word.", isFollowed: brief(3) },
  { text: "Name one planet. Just the name.", isFollowed: brief(3) },
  { text: "Say hello.", isFollowed: begins("hello", "hi", "hey") },
  { text: "Hi!", isFollowed: begins("hello", "hi", "hey", "good", "welcome") },
  { text: "Who are you? Begin with the words I am.", isFollowed: begins("I am", "I'm") },
  { text: "Translate 'good morning' into French.", isFollowed: mentions(/bonjour|bon matin/i) },
  { text: "Translate 'thank you' into Spanish.", isFollowed: mentions(/gracias/i) },
  { text: "Write a short poem about the sea.", isFollowed: mentions(/\n/) },
  { text: "Tell me a short story about a cat in three sentences.", isFollowed: mentions(/\bcat\b/i) },
  { text: "Write a one-sentence summary of what photosynthesis is.", isFollowed: mentions(/photosynthesis|plant/i) },
  { text: "Write a polite email asking my boss for a day off.", isFollowed: mentions(/subject|dear|hi|hello/i) },
  { text: "Explain what a computer is to a five-year-old.", isFollowed: mentions(/computer/i) },
  { text: "Give me a recipe for pancakes.", isFollowed: mentions(/pancake|ingredients|flour/i) },
  { text: "Write a Python function that adds two numbers.", isFollowed: mentions(/def |```/) },
  {
    text: 'Reply with the JSON object {"ok": true} and nothing else.',
    isFollowed: mentions(/^(?:```(?:json)?\s*)?\{/),
  },
  { text: "Repeat after me: the quick brown fox.", isFollowed: begins("the quick brown fox") },
  { text: "Is a tomato a fruit or a vegetable? Answer with one of the two words.", isFollowed: brief(4) },
];
