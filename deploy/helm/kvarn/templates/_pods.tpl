{{/* What every pod of the chart shares: image, security, environment, placement. */}}

{{/* (dict "root" $ "image" "operator"|"router"|"worker"): the whole reference. */}}
{{- define "kvarn.image" -}}
{{- $image := index .root.Values.images .image -}}
{{- $registry := .root.Values.global.imageRegistry | default .root.Values.images.registry | default "" -}}
{{- $repository := ternary (printf "%s/%s" ($registry | trimSuffix "/") $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository ($image.tag | default .root.Values.images.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "token" bool): the start of a pod spec. No service links: they would be unknown settings. */}}
{{- define "kvarn.podBasics" -}}
enableServiceLinks: false
automountServiceAccountToken: {{ .token }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- range $key := list "runAsUser" "runAsGroup" "fsGroup" }}
  {{- $id := index $.root.Values.security $key }}
  {{- if not (kindIs "invalid" $id) }}
  {{ $key }}: {{ $id | int64 }}
  {{- end }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "kvarn.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* (list own given): maps NAME: value or NAME: {valueFrom: ...}, as a container's list. What is given replaces our own. */}}
{{- define "kvarn.env" -}}
{{- $all := index . 0 -}}
{{- range $name, $value := index . 1 }}{{ $_ := set $all $name $value }}{{ end -}}
{{- range $name, $value := $all }}
- name: {{ $name | quote }}
  {{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* (list Secret key): the value of a variable. */}}
{{- define "kvarn.fromSecret" -}}
valueFrom:
  secretKeyRef:
    name: {{ index . 0 | quote }}
    key: {{ index . 1 | quote }}
{{- end -}}

{{/* A map flag: value, as arguments. true and false become --flag and --no-flag. */}}
{{- define "kvarn.args" -}}
{{- range $flag, $value := . }}
{{- if kindIs "bool" $value }}
- {{ printf "--%s%s" (ternary "" "no-" $value) $flag }}
{{- else }}
- {{ printf "--%s=%s" $flag (include "kvarn.number" $value) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Numbers of values are floats; 1000000 must not become 1e+06. */}}
{{- define "kvarn.number" -}}
{{- if and (kindIs "float64" .) (eq (. | int64 | float64) .) -}}{{ . | int64 }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* (dict "settings" values "selector" labels): where pods go. Unless told otherwise, they spread over nodes. */}}
{{- define "kvarn.placement" -}}
{{- with .settings.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
topologySpreadConstraints:
  {{- if .settings.topologySpreadConstraints }}
  {{- toYaml .settings.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- .selector | nindent 8 }}
  {{- end }}
{{- end -}}

{{/* By version: `helm template` knows the versions it is told, but claims the APIs of its own client. */}}
{{- define "kvarn.policyApi" -}}
{{- ternary "policy/v1" "policy/v1beta1" (semverCompare ">=1.21-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{/* (dict "root" "budget" values "selector" labels). Since 1.27 a pod that is not ready never holds a node. */}}
{{- define "kvarn.budgetSpec" -}}
maxUnavailable: {{ .budget.maxUnavailable }}
{{- if semverCompare ">=1.27-0" .root.Capabilities.KubeVersion.Version }}
unhealthyPodEvictionPolicy: AlwaysAllow
{{- end }}
selector:
  matchLabels:
    {{- .selector | nindent 4 }}
{{- end -}}

{{- define "kvarn.autoscalingApi" -}}
{{- ternary "autoscaling/v2" "autoscaling/v2beta2" (semverCompare ">=1.23-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
