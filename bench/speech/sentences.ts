// Test sentences of `bench speech`: everyday English and Japanese, without numerals and names. Also counts transcription errors.
import { japanesePhonemes } from "../../engines/speech/voices/kokoro/japanese.ts";

export const sentences: readonly string[] = [
  "The train was late again this morning.",
  "She opened the window and looked at the garden.",
  "We bought fresh bread and a bottle of milk.",
  "The old man walked slowly down the street.",
  "My brother is learning to play the piano.",
  "It rained all day and the river rose quickly.",
  "They built a small house near the lake.",
  "Please close the door when you leave the room.",
  "The children were playing football in the park.",
  "He forgot his keys on the kitchen table.",
  "A cold wind blew from the mountains last night.",
  "The teacher explained the problem one more time.",
  "I would like a cup of coffee with sugar.",
  "The museum is closed on the first day of the week.",
  "Her sister works in a large hospital.",
  "The ship left the harbor just before sunset.",
  "You should drink more water in the summer.",
  "The farmer sold his apples at the market.",
  "We watched the stars until we fell asleep.",
  "The report must be finished by tomorrow evening.",
  "A small dog followed us all the way home.",
  "The soup needs a little more salt and pepper.",
  "He wrote a long letter to his best friend.",
  "The library is full of interesting books.",
  "She painted the fence white and the gate green.",
  "The plane will land in about half an hour.",
  "Nobody knew the answer to the last question.",
  "The road was covered with snow and ice.",
  "They sat by the fire and told stories.",
  "The doctor said that he must stay in bed.",
  "My favorite season is the beginning of autumn.",
  "The factory makes engines for small boats.",
  "We need a new plan before the meeting starts.",
  "The baby slept through the noise of the storm.",
  "He carried the heavy box up the stairs.",
  "The flowers on the balcony need more light.",
  "She speaks three languages and wants to learn another.",
  "The bridge was built more than a century ago.",
  "I cannot find the map that you gave me.",
  "The music was so loud that we could not talk.",
  "A group of birds flew over the quiet village.",
  "The shop on the corner sells paper and pens.",
  "He always takes the first bus to work.",
  "The judge listened carefully to both sides.",
  "They planted a tree in front of the school.",
  "The computer stopped working in the middle of the game.",
  "We are going to visit our parents next weekend.",
  "The bright moon lit the path through the forest.",
  "She put the broken glass into a paper bag.",
  "The answer is simple if you think about it.",
];

export const japaneseSentences: readonly string[] = [
  "今日はとても天気がいいです。",
  "明日の朝、駅の前で会いましょう。",
  "私は毎日コーヒーを飲みます。",
  "この本はとても面白かったです。",
  "窓を開けてもいいですか？",
  "電車が遅れているので、少し待ってください。",
  "母は台所で料理をしています。",
  "子供たちは公園で遊んでいます。",
  "新しい靴を買いに行きたいです。",
  "雨が降りそうだから、傘を持っていきなさい。",
  "図書館は駅から歩いて行けます。",
  "先生は黒板に大きな字を書きました。",
  "昨日の夜は星がきれいに見えました。",
  "友達と一緒に海で泳ぎました。",
  "この料理は少し辛いですね。",
  "会議は午後から始まります。",
  "猫が屋根の上で寝ています。",
  "日本語を勉強するのは楽しいです。",
  "冷たい水を一杯ください。",
  "来年はもっと旅行したいと思います。",
];

/** Returns the phonemes of a Japanese text, without spaces and punctuation; an empty list if the text cannot be converted. */
export async function phonemesHeard(text: string): Promise<readonly string[]> {
  const asWritten = async (words: string): Promise<string> => words;
  const phonemes = await japanesePhonemes(text, new AbortController().signal, asWritten).catch(() => "");
  return [...phonemes.replaceAll(/[^\p{L}ː]/gu, "")];
}

/** Returns the words of a text, without case and punctuation. British and American spellings count as the same word. */
export function wordsOf(text: string): readonly string[] {
  const plain = text.toLowerCase().replaceAll(/[^a-z' ]+/g, " ");
  return plain
    .split(" ")
    .filter((word) => word !== "")
    .map((word) => word.replace(/^(harb|fav)our/, "$1or"));
}

/** Returns the number of words that must be inserted, removed or replaced to turn one text into another. */
export function wordErrors(spoken: readonly string[], transcribed: readonly string[]): number {
  let row = Array.from({ length: transcribed.length + 1 }, (_, i) => i);
  for (const [i, word] of spoken.entries()) {
    const next = [i + 1];
    for (const [k, other] of transcribed.entries()) {
      const replaced = (row[k] as number) + (word === other ? 0 : 1);
      next.push(Math.min(replaced, (row[k + 1] as number) + 1, (next[k] as number) + 1));
    }
    row = next;
  }
  return row.at(-1) as number;
}
