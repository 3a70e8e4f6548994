// Translates the body of PUT /v1/sessions/{session_id}. A long body is parsed on a text worker.
import { type SerializedSession, serializedSessionSchema } from "../../actors/api/agent/serialized-session.ts";
import { acceptedBody } from "../shared/accepted-body.ts";
import type { BodyTranslator, Translation } from "../shared/translation.ts";

interface SessionTranslation extends Translation {
  readonly session: SerializedSession;
}

export const sessionTranslator: BodyTranslator<SessionTranslation> = {
  name: "session",
  translate(value) {
    // A session of another form must not be imported in part, so unknown fields are refused.
    const { body } = acceptedBody(serializedSessionSchema, value, "refuse");
    return { model: null, ignored: [], session: body };
  },
  pack: (translated) => ({ value: translated }),
};
