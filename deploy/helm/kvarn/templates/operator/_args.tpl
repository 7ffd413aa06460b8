{{/* Namespaces that the operator watches, as a list; with clusterWide it watches all and this only places Roles. */}}
{{- define "kvarn.watched" -}}
{{- prepend (.Values.operator.namespaces | default list) .Release.Namespace | uniq | toJson -}}
{{- end -}}

{{- define "kvarn.operatorArgs" -}}
{{- $operator := .Values.operator -}}
{{- if $operator.clusterWide }}
- --cluster-wide
{{- else }}
- --namespaces={{ include "kvarn.watched" . | fromJsonArray | join "," }}
{{- end }}
- {{ printf "--worker-image=%s" (include "kvarn.image" (dict "root" $ "image" "worker")) | quote }}
- --image-pull-policy={{ .Values.images.pullPolicy }}
{{- with .Values.global.imagePullSecrets }}
- --image-pull-secrets={{ range $index, $secret := . }}{{ if $index }},{{ end }}{{ $secret.name }}{{ end }}
{{- end }}
{{- if .Values.tls.enabled }}
- {{ printf "--tls-secret=%s" (include "kvarn.tlsSecret" .) | quote }}
{{- end }}
{{- with .Values.workers.serviceAccountName }}
- {{ printf "--worker-service-account=%s" . | quote }}
{{- end }}
{{- with .Values.workers.priorityClassName }}
- {{ printf "--priority-class-name=%s" . | quote }}
{{- end }}
{{- if $operator.leaderElection.enabled }}
- --leader-elect
- --lease-name={{ $operator.leaderElection.leaseName }}
- --lease-namespace={{ .Release.Namespace }}
{{- else }}
- --no-leader-elect
{{- end }}
- --health-port=8081
- --metrics-port=8082
- --resync-s={{ include "kvarn.number" $operator.resyncSeconds }}
- --sample-s={{ include "kvarn.number" $operator.sampleSeconds }}
- --log-level={{ $operator.logLevel }}
- {{ ternary "--log-json" "--no-log-json" $operator.logJson }}
{{- include "kvarn.args" $operator.args }}
{{- end -}}
