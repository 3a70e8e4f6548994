// Head of a stored response: the fields that are read without the response's large parts.
import type { StoredResponse } from "../api/stored-responses.ts";

/** Response fields for lists. Responses stored by earlier versions lack them. */
type ListFields = Pick<StoredResponse, "createdAt" | "model" | "inputStart" | "outputStart">;
type OptionalFields = Partial<ListFields> & Pick<StoredResponse, "isPublished">;

/** Fields of a stored response that are read without the response's large parts. */
export interface KeptHead
  extends Pick<StoredResponse, "previousId" | "isRunning" | "status" | "isBackground">,
    OptionalFields {
  readonly inputCount: number;
  readonly outputCount: number;
  /** Number of the first stored event; null = no events are stored. */
  readonly firstEvent: number | null;
  /** Identity of the server that generates the response. */
  readonly owner: string;
  /**
   * Whether this is a tombstone: a server has deleted the response while another server was generating it. Later writes of the
   * generating server are dropped, so that they do not restore the response.
   */
  readonly isDeleted: boolean;
  /** Number of restarts of a response that can be restarted because it has no output yet; absent = it must not be restarted. */
  readonly restarts?: number;
}
