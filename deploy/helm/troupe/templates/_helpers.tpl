{{- define "troupe.name" -}}
{{- if contains "troupe" .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-troupe" .Release.Name }}{{ end -}}
{{- end }}

{{- define "troupe.selector" -}}
app.kubernetes.io/name: troupe
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "troupe.labels" -}}
{{ include "troupe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
