{{/* Namespaces that the operator watches, as a list; with clusterWide it watches all and this only places Roles. */}}
{{- define "kvarn.watched" -}}
{{- prepend .Values.operator.namespaces .Release.Namespace | uniq | toJson -}}
{{- end -}}

{{- define "kvarn.operatorArgs" -}}
{{- $operator := .Values.operator -}}
{{- if $operator.clusterWide }}
- --cluster-wide
{{- else }}
- --namespaces={{ include "kvarn.watched" . | fromJsonArray | join "," }}
{{- end }}
- --worker-image={{ include "kvarn.image" (dict "root" $ "image" "worker") }}
- --image-pull-policy={{ .Values.images.pullPolicy }}
{{- with .Values.global.imagePullSecrets }}
- --image-pull-secrets={{ range $index, $secret := . }}{{ if $index }},{{ end }}{{ $secret.name }}{{ end }}
{{- end }}
{{- if .Values.tls.enabled }}
- --tls-secret={{ include "kvarn.tlsSecret" . }}
{{- end }}
{{- with .Values.workers.serviceAccountName }}
- --worker-service-account={{ . }}
{{- end }}
{{- with .Values.workers.priorityClassName }}
- --priority-class-name={{ . }}
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
