import assert from "node:assert/strict";
import { it } from "node:test";
import { holdMedia } from "../../../../actors/generation/request-media.ts";
import type { ModelPlaceReady, ModelProtocol } from "../../../../actors/messages.ts";
import type { Ref } from "../../../../runtime/actor/ref.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { imageSpec, request } from "./rig.ts";

it("a hold of media ends if their preparation takes too long", async () => {
  const told: unknown[] = [];
  const actor = {
    ask: async () => {
      throw new ServerError("timeout", "no reply");
    },
    tell: (...message: unknown[]) => void told.push(message),
  } as unknown as Ref<ModelProtocol>;
  const source = { kind: "data", bytes: new Uint8Array(1), digest: "a" } as const;
  const asked = request({ media: [{ key: "a", param: "messages", source }] });
  const ready = { images: imageSpec } as ModelPlaceReady;
  const held = holdMedia(asked, { actor, ready, hold: 7 }, new AbortController().signal);
  await assert.rejects(held, /no reply/);
  assert.deepEqual(told, [["releaseMedia", { hold: 7 }]]);
});
