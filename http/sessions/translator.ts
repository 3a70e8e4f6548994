// Translator of the body of PUT /v1/sessions/{session_id}. A long body is parsed on a text worker.
import { type SerializedSession, serializedSessionSchema } from "../../actors/api/agent/serialized-session.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";

interface SessionTranslation extends Translation {
  readonly session: SerializedSession;
}

export const sessionTranslator: BodyTranslator<SessionTranslation> = {
  name: "session",
  translate(value) {
    // Unknown fields are refused, because a session with such fields would be imported only in part.
    const { body } = acceptedBody(serializedSessionSchema, value, "refuse");
    return { model: null, ignored: [], session: body };
  },
  pack: (translated) => ({ value: translated }),
};
