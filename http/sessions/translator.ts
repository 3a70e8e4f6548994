// Translator of the body of PUT /v1/sessions/{session_id}. A text worker parses long bodies.
import { type SerializedSession, serializedSessionSchema } from "../../actors/api/agent/serialized-session.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";

interface SessionTranslation extends Translation {
  readonly session: SerializedSession;
}

export const sessionTranslator: BodyTranslator<SessionTranslation> = {
  name: "session",
  translate(value) {
    // Unknown fields are rejected, because they would be lost during the import.
    const { body } = acceptedBody(serializedSessionSchema, value, "refuse");
    return { model: null, ignored: [], session: body };
  },
  pack: (translated) => ({ value: translated }),
};
