// Editor of a message's text.
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../base/language.ts";

interface Props {
  readonly text: string;
  readonly label: string;
  readonly onSave: (text: string) => void;
  readonly onCancel: () => void;
}

export function Editor({ text, label, onSave, onCancel }: Props) {
  const [value, setValue] = useState(text);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") onCancel();
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onSave(value);
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        aria-label={label}
        value={value}
        rows={Math.min(20, value.split("\n").length + 1)}
        onInput={({ currentTarget }) => setValue(currentTarget.value)}
        onKeyDown={onKey}
      />
      <div class="actions">
        <button type="button" class="button" onClick={onCancel}>
          {t("cancel")}
        </button>
        <button type="button" class="button main" onClick={() => onSave(value)}>
          {t("save")}
        </button>
      </div>
    </div>
  );
}
