{{/* (dict "root" "name" "model"): arguments of a model's router. API keys come as a variable, never here. */}}
{{- define "kvarn.routerArgs" -}}
{{- $settings := include "kvarn.routerSettings" . | fromYaml -}}
- --host=0.0.0.0
- --port=8080
- {{ printf "--model=%s" (include "kvarn.modelReference" .) | quote }}
{{- with (.model.spec | default dict).model | default dict }}
{{- if and .revision .source }}
{{- if .source.hub }}
- {{ printf "--model-revision=%s" .revision | quote }}
{{- end }}
{{- end }}
{{- end }}
- {{ printf "--served-model-name=%s" (include "kvarn.servedNames" .) | quote }}
- --workers-selector=kvarn.dev/model-service={{ .name }},app.kubernetes.io/component=worker
- --workers-port-name=grpc
{{- if include "kvarn.scalesToZero" . }}
- --ready-without-workers
{{- /* Workers have to load the model first. */}}
- --hold-s=120
{{- end }}
- --shutdown-delay-s={{ include "kvarn.number" $settings.shutdown.delaySeconds }}
- --shutdown-timeout-s={{ include "kvarn.number" $settings.shutdown.timeoutSeconds }}
- --log-level={{ $settings.logLevel }}
- {{ ternary "--log-json" "--no-log-json" $settings.logJson }}
{{- if .root.Values.tls.enabled }}
- --tls-cert-file=/etc/kvarn/tls/tls.crt
- --tls-key-file=/etc/kvarn/tls/tls.key
- --tls-ca-file=/etc/kvarn/tls/ca.crt
{{- end }}
{{- include "kvarn.args" $settings.args }}
{{- end -}}

{{- define "kvarn.routerEnv" -}}
{{- $settings := include "kvarn.routerSettings" . | fromYaml -}}
{{- $own := include "kvarn.clientEnv" $settings | fromYaml -}}
{{- if include "kvarn.downloads" . }}
{{- $own = merge $own (dict "KVARN_CACHE" "/cache" "HF_HOME" "/cache/hf") -}}
{{- end }}
{{- $secret := ((.model.spec | default dict).model | default dict).secretRef -}}
{{- if and $secret (include "kvarn.modelSource" . | fromYaml).hub }}
{{- $_ := set $own "HF_TOKEN" (include "kvarn.fromSecret" (list $secret.name ($secret.key | default "token")) | fromYaml) -}}
{{- end }}
{{- include "kvarn.env" (list $own $settings.env) -}}
{{- end -}}

{{/* Variables of a router, also of the test, which asks as a client: a map. */}}
{{- define "kvarn.clientEnv" -}}
HOME: /tmp
{{- with .apiKeys.existingSecret }}
KVARN_API_KEYS:
  {{- include "kvarn.fromSecret" (list . $.apiKeys.key) | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kvarn.routerMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if include "kvarn.downloads" . }}
- name: cache
  mountPath: /cache
{{- end }}
{{- if include "kvarn.modelVolume" . }}
- name: model
  mountPath: /models
  readOnly: true
{{- end }}
{{- if .root.Values.tls.enabled }}
- name: tls
  mountPath: /etc/kvarn/tls
  readOnly: true
{{- end }}
{{- end -}}

{{- define "kvarn.routerVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- if include "kvarn.downloads" . }}
- name: cache
  {{- if (include "kvarn.modelSource" . | fromYaml).url }}
  # The whole archive passes through, weights and all.
  emptyDir: {}
  {{- else }}
  emptyDir: {sizeLimit: {{ (include "kvarn.routerSettings" . | fromYaml).cache.sizeLimit | quote }}}
  {{- end }}
{{- end }}
{{- include "kvarn.modelVolume" . }}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "kvarn.tlsSecret" .root | quote }}
{{- end }}
{{- end -}}
