// Dialog: the browser's modal dialog, which traps the keyboard focus and closes with Escape.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "./button.tsx";
import { t } from "./language.ts";

export interface DialogProps {
  readonly title: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const shown = dialog.current;
    shown?.showModal();
    // The browser returns the focus to the element that had it before the dialog.
    return () => shown?.close();
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-label={title} onClose={onClose} onCancel={onClose}>
      <header>
        <h2>{title}</h2>
        <Button icon="close" label={t("close")} onPress={onClose} />
      </header>
      <div class="dialog-body">{children}</div>
    </dialog>
  );
}
