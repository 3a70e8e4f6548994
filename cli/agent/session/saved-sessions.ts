// Saved sessions: wraps the sessions of the agent loop, and also saves each session to a file. Unlike the sessions of a server,
// the session of the conversation does not expire while the command runs.

import type { Files } from "../../../actors/api/agent/files.ts";
import { importedSession, serializedSession } from "../../../actors/api/agent/serialized-session.ts";
import type { Session, Sessions, SessionUpdate } from "../../../actors/api/agent/sessions.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { SavedSession, SessionFiles } from "./session-files.ts";

export interface SavedSessionsOptions {
  readonly inner: Sessions;
  readonly files: Files;
  readonly saved: SessionFiles;
  readonly workFolder: string;
  readonly log: Logger;
}

export class SavedSessions implements Sessions {
  readonly #options: SavedSessionsOptions;
  /** The session that was used last, with its client. */
  #last: Parameters<Sessions["put"]>[0] | null = null;

  constructor(options: SavedSessionsOptions) {
    this.#options = options;
  }

  /** Adds a saved session to the sessions of the agent loop. */
  async restore({ id, session }: SavedSession, client: string): Promise<Session> {
    const { inner, files } = this.#options;
    const restored = await importedSession(id, client, session, files);
    this.#last = { client, session: restored };
    await inner.put(this.#last);
    return restored;
  }

  async match(request: Parameters<Sessions["match"]>[0]): ReturnType<Sessions["match"]> {
    const { inner } = this.#options;
    const isForgotten = request.id !== null && (await inner.find(request.id)) === null;
    if (isForgotten && this.#last?.session.id === request.id) await inner.put(this.#last);
    return await inner.match(request);
  }

  async update(update: SessionUpdate): Promise<void> {
    const { id, client } = update;
    await this.#options.inner.update(update);
    const session = await this.#options.inner.find(id);
    if (session === null) return;
    this.#last = { client, session };
    await this.#save(session);
  }

  list(request: Parameters<Sessions["list"]>[0]): ReturnType<Sessions["list"]> {
    return this.#options.inner.list(request);
  }

  find(id: string): Promise<Session | null> {
    return this.#options.inner.find(id);
  }

  put(request: Parameters<Sessions["put"]>[0]): Promise<void> {
    return this.#options.inner.put(request);
  }

  delete(id: string): Promise<boolean> {
    return this.#options.inner.delete(id);
  }

  /** Saves a session, but not its files, because they are in the work folder. A failure does not end the conversation. */
  async #save(session: Session): Promise<void> {
    const { saved, files, workFolder, log } = this.#options;
    try {
      const content = await serializedSession({ ...session, files: [] }, files);
      await saved.save({ id: session.id, folder: workFolder, session: content });
    } catch (error) {
      log.warn({ reason: (error as Error).message }, "the session could not be saved, so it cannot be continued later");
    }
  }
}
