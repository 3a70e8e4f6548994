// File that a tool produced: its name, a preview of images and text, and a download button.
import { useState } from "preact/hooks";
import { Button } from "../../base/button.tsx";
import { t } from "../../base/language.ts";
import { notifyError } from "../../base/notice.tsx";
import { bytes } from "../../base/times.ts";
import { request } from "../../server/client.ts";
import type { ProducedFile } from "../../server/wire.ts";

const shownImages = /^image\/(?:png|jpeg|gif|webp)$/;
const shownCharacters = 20_000;

export function Produced({ file }: { readonly file: ProducedFile }) {
  const [preview, setPreview] = useState<{ readonly image?: string; readonly text?: string } | null>(null);
  const type = String(file.mime_type ?? "");
  const isShown = shownImages.test(type) || type.startsWith("text/") || type === "application/json";
  const content = async (): Promise<Blob> => await (await request(`v1/files/${file.id}/content`)).blob();
  const show = async (): Promise<void> => {
    const blob = await content();
    setPreview(
      shownImages.test(type)
        ? { image: URL.createObjectURL(blob) }
        : { text: (await blob.text()).slice(0, shownCharacters) },
    );
  };
  const download = async (): Promise<void> => {
    const url = URL.createObjectURL(await content());
    const link = document.createElement("a");
    link.href = url;
    link.download = file.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return (
    <section class="produced" aria-label={file.name}>
      <span class="file-name">{file.name}</span>
      {typeof file.bytes === "number" && <span class="quiet">{bytes(file.bytes)}</span>}
      {isShown && <Button icon="search" label={t("preview")} onPress={() => void show().catch(notifyError)} />}
      <Button icon="download" label={t("download")} onPress={() => void download().catch(notifyError)} />
      {preview?.image !== undefined && <img src={preview.image} alt={file.name} />}
      {preview?.text !== undefined && <pre tabIndex={0}>{preview.text}</pre>}
    </section>
  );
}
