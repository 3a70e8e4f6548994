// Head of a stored response: the fields that are read without its large parts.
import type { StoredResponse } from "../api/stored-responses.ts";

/** Fields of a response for lists. Responses of earlier versions lack them. */
type ListFields = Pick<StoredResponse, "createdAt" | "model" | "inputStart" | "outputStart">;
type OptionalFields = Partial<ListFields> & Pick<StoredResponse, "isPublished">;

/** Fields of a response that are read without reading its large parts. */
export interface KeptHead
  extends Pick<StoredResponse, "previousId" | "isRunning" | "status" | "isBackground">,
    OptionalFields {
  readonly inputCount: number;
  readonly outputCount: number;
  /** Number of the first stored event; null: none are stored. */
  readonly firstEvent: number | null;
  /** Identity of the server that generates the response. */
  readonly owner: string;
  /**
   * True for a tombstone: a server has deleted the response while another server generates it. Later writes of the generating
   * server are dropped, so that they do not restore the response.
   */
  readonly isDeleted: boolean;
  /** Number of restarts of a response that another server may restart, because it has no output yet; absent: none may. */
  readonly restarts?: number;
}
