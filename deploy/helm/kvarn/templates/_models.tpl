{{/* What a router needs to know of its model. Each takes (dict "root" $ "name" name "model" entry of models). */}}

{{/* The section `router`, with the model's own values over it, as YAML. */}}
{{- define "kvarn.routerSettings" -}}
{{- mustMergeOverwrite (deepCopy .root.Values.router) (deepCopy (.model.router | default dict)) | toYaml -}}
{{- end -}}

{{- define "kvarn.routerName" -}}
{{- include "kvarn.bounded" (list .name "router") -}}
{{- end -}}

{{- define "kvarn.modelSource" -}}
{{- $model := ((.model.spec | default dict).model | default dict) -}}
{{- $model.source | default dict | toYaml -}}
{{- end -}}

{{- define "kvarn.servedNames" -}}
{{- $model := ((.model.spec | default dict).model | default dict) -}}
{{- join "," ($model.servedNames | default (list .name)) -}}
{{- end -}}

{{/* Whether pods fetch the model from outside of the cluster: true, or nothing. */}}
{{- define "kvarn.downloads" -}}
{{- $source := include "kvarn.modelSource" . | fromYaml -}}
{{- if or (hasKey $source "hub") (hasKey $source "url") }}true{{ end -}}
{{- end -}}

{{/* What the router's --model names. */}}
{{- define "kvarn.modelReference" -}}
{{- $source := include "kvarn.modelSource" . | fromYaml -}}
{{- if $source.hub -}}
{{- $source.hub.id -}}
{{- else if $source.url -}}
{{- $source.url.url -}}
{{- else if or $source.pvc $source.image -}}
{{- printf "/models/%s" (($source.pvc | default $source.image).path | default "" | trimPrefix "/") | trimSuffix "/" -}}
{{- else -}}
/opt/kvarn/models/smollm2-135m
{{- end -}}
{{- end -}}

{{- define "kvarn.modelVolume" -}}
{{- $source := include "kvarn.modelSource" . | fromYaml -}}
{{- if $source.pvc }}
- name: model
  persistentVolumeClaim:
    claimName: {{ $source.pvc.claimName | quote }}
    readOnly: true
{{- else if $source.image }}
- name: model
  image:
    reference: {{ $source.image.reference | quote }}
    pullPolicy: IfNotPresent
{{- end }}
{{- end -}}

{{/* Whether a pool may be without workers while requests come: true, or nothing. */}}
{{- define "kvarn.scalesToZero" -}}
{{- range $role := list "prefill" "decode" -}}
{{- $scaling := (index ($.model.spec | default dict) $role | default dict).scaling | default dict -}}
{{- if eq (toString $scaling.min) "0" }}true{{ end -}}
{{- end -}}
{{- end -}}
