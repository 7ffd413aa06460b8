{{/* Names and labels. Every name of the chart stays within 63 characters. */}}

{{/* (list base suffix): base-suffix, or, when that is too long, cut-hash-suffix. */}}
{{- define "kvarn.bounded" -}}
{{- $base := index . 0 -}}
{{- $suffix := index . 1 -}}
{{- $whole := printf "%s-%s" $base $suffix -}}
{{- if le (len $whole) 63 -}}
{{- $whole -}}
{{- else -}}
{{- $room := sub 63 (add (len $suffix) 12) | int -}}
{{- printf "%s-%s-%s" ($base | trunc $room | trimAll "-.") (sha256sum $base | trunc 10) $suffix -}}
{{- end -}}
{{- end -}}

{{- define "kvarn.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "kvarn.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "kvarn.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "kvarn.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kvarn.operatorName" -}}
{{- include "kvarn.bounded" (list (include "kvarn.fullname" .) "operator") -}}
{{- end -}}

{{- define "kvarn.operatorAccount" -}}
{{- $account := .Values.operator.serviceAccount -}}
{{- if $account.create -}}
{{- default (include "kvarn.operatorName" .) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{/* (list root suffix): of a cluster-wide object. No namespace holds a dot, so no two releases make the same name. */}}
{{- define "kvarn.clusterName" -}}
{{- $root := index . 0 -}}
{{- include "kvarn.bounded" (list (printf "%s.%s" $root.Release.Namespace (include "kvarn.fullname" $root)) (index . 1)) -}}
{{- end -}}

{{- define "kvarn.crdsName" -}}
{{- include "kvarn.bounded" (list (include "kvarn.fullname" .) "crds") -}}
{{- end -}}

{{/* (dict "root" $ "component" name ["model" name]): what selects pods. Never a version: selectors cannot be changed. */}}
{{- define "kvarn.selector" -}}
app.kubernetes.io/name: {{ include "kvarn.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .model }}
kvarn.dev/model-service: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* With ["labels"], which like commonLabels may not replace what selects pods. No version: a new chart restarts nothing. */}}
{{- define "kvarn.podLabels" -}}
{{- $own := merge (include "kvarn.selector" . | fromYaml) (dict "app.kubernetes.io/part-of" "kvarn") -}}
{{- merge $own (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- define "kvarn.labels" -}}
{{- $release := dict "app.kubernetes.io/version" .root.Chart.AppVersion "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $release "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- merge $release (include "kvarn.podLabels" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* (dict "root" "component" "name" ["model"] ["namespace"] ["labels"] ["annotations"]): a whole metadata block. */}}
{{- define "kvarn.metadata" -}}
metadata:
  name: {{ .name | quote }}
  {{- if ne (.namespace | toString) "none" }}
  namespace: {{ .namespace | default .root.Release.Namespace | quote }}
  {{- end }}
  labels:
    {{- include "kvarn.labels" . | nindent 4 }}
  {{- $annotations := merge (dict) (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
  {{- with $annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
