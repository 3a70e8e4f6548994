// Operation on files: uploads a file, reads it back from any replica, and deletes it.
import { answered } from "../client.ts";
import { stuckIsBroken } from "./chats.ts";
import type { Work } from "./operation.ts";

export async function files({ server, dice, ledger, others, what, limitMs }: Work): Promise<void> {
  const content = dice.word(dice.size(20_000), [..."abcdefgh \n"]);
  const form = `--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\n${content}\r\n--b--\r\n`;
  const headers = { "content-type": "multipart/form-data; boundary=b" };
  const upload = await answered(`${server.url}/v1/files`, { body: Buffer.from(form), headers }, limitMs);
  if (!(await ledger.judge(what, upload, server, await stuckIsBroken(upload, what, ledger)))) return;
  const { id } = upload.json as unknown as { id: string };
  const reader = others();
  const lost = ledger.mayLose ? ["file_not_found", "file_elided"] : [];
  const read = await answered(`${reader.url}/v1/files/${id}/content`, {}, limitMs);
  if (await ledger.judge(`${what}, read`, read, reader, await stuckIsBroken(read, what, ledger), lost)) {
    if (read.text !== content)
      ledger.broken(`${what}: expected ${content.length} characters of ${id}, got ${read.text.length}`);
    ledger.count("file");
  }
  const remover = others();
  const removed = await answered(`${remover.url}/v1/files/${id}`, { method: "DELETE" }, limitMs);
  await ledger.judge(`${what}, delete`, removed, remover, await stuckIsBroken(removed, what, ledger), lost);
}
