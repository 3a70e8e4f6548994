// Media parts of messages: an image, video or audio as a data URL, at a URL, or in a stored file. The request contains each
// medium once; messages refer to it by key.
import { createHash } from "node:crypto";
import type { ChatMessage, MessageMedia, RequestMedia } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";

/** Maximum length of a URL that is not a data URL. */
const MAX_URL_LENGTH = 8192;
/** Maximum number of images, videos and audio parts in a request. A model may accept fewer (max_num_images, max_num_audio). */
const MAX_MEDIA = 1024;
const dataUrls = {
  image: /^data:image\/[\w.+-]{1,64}(?:;[^,;]{1,256}){0,8};base64,/i,
  audio: /^data:(?:audio|video)\/[\w.+-]{1,64}(?:;[^,;]{1,256}){0,8};base64,/i,
  video: /^data:(?:video\/[\w.+-]{1,64}|image\/(?:gif|webp))(?:;[^,;]{1,256}){0,8};base64,/i,
};
const examples = {
  image: "an image in base64 (data:image/png;base64,...)",
  audio: "audio in base64 (data:audio/wav;base64,...)",
  video: "a video in base64 (data:video/mp4;base64,...)",
};
const base64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

type MediaKind = keyof typeof dataUrls;

/** Collects the images, videos and audio of a request. */
export class MediaCollector {
  readonly #media = new Map<string, RequestMedia>();

  /** Images, videos and audio without duplicates; undefined if there are none. */
  get all(): readonly RequestMedia[] | undefined {
    return this.#media.size === 0 ? undefined : [...this.#media.values()];
  }

  /** Adds the image, video or audio at a URL or in a data URL. Returns its key. Throws `invalid_value`. */
  addUrl(url: string, param: string, kind: MediaKind = "image"): string {
    const head = dataUrls[kind].exec(url)?.[0];
    if (head !== undefined) return this.addBase64(url.slice(head.length), param, kind);
    if (/^data:/i.test(url)) throw invalid(`a data URL of ${examples[kind]}`, param);
    if (!/^https?:\/\//i.test(url)) throw invalid("a data URL, or a URL that begins with https:// or http://", param);
    if (url.length > MAX_URL_LENGTH)
      throw invalid(`a URL of at most ${MAX_URL_LENGTH} characters`, param, `one of ${url.length}`);
    return this.#add(`url ${url}`, { kind: "url", url }, param, kind);
  }

  /** Adds an image, video or audio in base64. Returns its key. Throws `invalid_value`. */
  addBase64(text: string, param: string, kind: MediaKind = "image"): string {
    if (text === "" || !base64.test(text) || text.replace(/=+$/, "").length % 4 === 1) throw invalid("base64", param);
    // The bytes are copied to a separate buffer, because small Buffers share one.
    const bytes = new Uint8Array(Buffer.from(text, "base64"));
    const digest = createHash("sha256").update(bytes).digest("hex");
    return this.#add(digest, { kind: "data", bytes, digest }, param, kind);
  }

  /** Adds audio in base64, with or without a data URL prefix. Returns its key. Throws `invalid_value`. */
  addAudio(data: string, param: string): string {
    return this.addBase64(data.slice(dataUrls.audio.exec(data)?.[0].length ?? 0), param, "audio");
  }

  /** Adds the image or video in a stored file. Returns its key. */
  addFile(id: string, param: string, kind: MediaKind = "image"): string {
    return this.#add(`file ${id}`, { kind: "file", id }, param, kind);
  }

  #add(name: string, source: RequestMedia["source"], param: string, kind: MediaKind): string {
    const key = kind === "image" ? name : `${kind} ${name}`;
    if (!this.#media.has(key)) this.#media.set(key, { key, source, param, ...(kind !== "image" && { kind }) });
    if (this.#media.size > MAX_MEDIA) {
      throw invalid(`at most ${MAX_MEDIA} images, videos and audio parts`, param, `${this.#media.size}`);
    }
    return key;
  }
}

/** Part of a message: a text, or the key of an image, video or audio. */
export type ContentPart = { readonly text: string } | { readonly media: string };

/**
 * Returns the content of a message: its texts, joined by `separator`, and the offsets of its images, videos and audio in this
 * text.
 */
export function contentOf(parts: readonly ContentPart[], separator: string): Pick<ChatMessage, "content" | "media"> {
  let content = "";
  const media: MessageMedia[] = [];
  let isAfterText = false;
  for (const part of parts) {
    if ("media" in part) media.push({ at: content.length, key: part.media });
    else content += (isAfterText ? separator : "") + part.text;
    isAfterText = !("media" in part);
  }
  return { content, ...(media.length > 0 && { media }) };
}

function invalid(what: string, param: string, got = "other text"): ServerError {
  return new ServerError("invalid_value", `expected ${what}; got ${got}`, { param });
}
