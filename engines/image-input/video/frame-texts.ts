// Frame texts: how the prompt tells a model the times of a video's frames. A model gets the texts of its training, which are those of
// Hugging Face transformers' processors.
import type { ProjectorKind } from "../../files/projector/image-rules.ts";

/** `before`: text before each frame. `after`: text after the last one. */
export interface FrameTexts {
  readonly before: readonly string[];
  readonly after: string;
}

/** Returns the texts for frames at these times, in seconds. They are empty for models that were trained without such texts. */
export function frameTexts(projector: ProjectorKind, times: readonly number[]): FrameTexts {
  switch (projector) {
    case "qwen3vl_merger":
      return { before: times.map((time) => `<${time.toFixed(1)} seconds>`), after: "" };
    case "gemma4v":
    case "gemma4uv":
      return { before: times.map((time, i) => `${i === 0 ? "" : " "}${clock(time)} `), after: "" };
    case "internvl":
      return { before: times.map((_, i) => `${i === 0 ? "" : "\n"}Frame${i + 1}: `), after: "" };
    case "idefics3":
      return {
        before: times.map((time, i) => `${i === 0 ? introduction(times) : ""}\nFrame from ${clock(time)}:`),
        after: "\n\n",
      };
    case "gemma3":
    case "mlp":
    case "resampler":
    case "pixtral":
    case "qwen2vl_merger":
    case "qwen2.5vl_merger":
      return { before: times.map(() => ""), after: "" };
  }
}

/** Returns minutes and seconds as MM:SS. */
function clock(seconds: number): string {
  return `${twoDigits(Math.floor(seconds / 60))}:${twoDigits(Math.floor(seconds % 60))}`;
}

/** SmolVLM's introduction of a video. Its length is the time of the last frame, which is the last one of the video. */
function introduction(times: readonly number[]): string {
  const seconds = Math.floor(times.at(-1) ?? 0);
  const length = `${Math.floor(seconds / 3600)}:${twoDigits(Math.floor(seconds / 60) % 60)}:${twoDigits(seconds % 60)}`;
  return `You are provided the following series of ${inWords(times.length)} frames from a ${length} [H:MM:SS] video.\n`;
}

function twoDigits(count: number): string {
  return String(count).padStart(2, "0");
}

const small =
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(
    " ",
  );
const tens = " ten twenty thirty forty fifty sixty seventy eighty ninety".split(" ");

/** Returns a number below 1000 in words. */
function inWords(count: number): string {
  if (count < small.length) return small[count] as string;
  if (count < 100) {
    const unit = count % 10;
    return `${tens[Math.floor(count / 10)]}${unit === 0 ? "" : `-${small[unit]}`}`;
  }
  const rest = count % 100;
  return `${small[Math.floor(count / 100)]} hundred${rest === 0 ? "" : ` and ${inWords(rest)}`}`;
}
