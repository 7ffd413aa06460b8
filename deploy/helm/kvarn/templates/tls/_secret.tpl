{{/* Name of the Secret that routers and, through the operator, workers mount. */}}
{{- define "kvarn.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (include "kvarn.bounded" (list (include "kvarn.fullname" .) "tls")) -}}
{{- end -}}
