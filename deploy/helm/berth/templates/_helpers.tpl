{{- define "berth.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* A release may have dots in its name; a Service may not. */}}
{{- define "berth.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "berth.name" .) .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "berth.name" .) | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The name of objects without a namespace: releases of the same name in other namespaces need other names. */}}
{{- define "berth.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "berth.fullname" .) -}}
{{- end -}}

{{- define "berth.selectorLabels" -}}
app.kubernetes.io/name: {{ include "berth.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: scheduler
{{- end -}}

{{- define "berth.labels" -}}
{{ include "berth.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: berth
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "berth.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "berth.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is due when serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "berth.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The KubeSchedulerConfiguration: the values, merged over the chart's defaults. */}}
{{- define "berth.config" -}}
{{- $lease := dict "leaderElect" true "resourceName" (include "berth.fullname" .) "resourceNamespace" .Release.Namespace -}}
{{- $own := dict "apiVersion" "kubescheduler.config.k8s.io/v1" "kind" "KubeSchedulerConfiguration" "leaderElection" $lease -}}
{{- $config := mergeOverwrite $own (deepCopy .Values.config) -}}
{{- if .Values.shadow -}}
{{- $_ := set $config.leaderElection "leaderElect" false -}}
{{- end -}}
{{- $config | toYaml -}}
{{- end -}}

{{/* The name of a plugin's container: GpuShare -> gpu-share. */}}
{{- define "berth.pluginContainer" -}}
{{- default (regexReplaceAll "[^a-z0-9]+" (kebabcase .name) "-" | trunc 63 | trimSuffix "-") .container.name -}}
{{- end -}}

{{/* Refuse two plugins, or two containers, of one name: GpuShare and gpu_share would share a socket. */}}
{{- define "berth.distinctPlugins" -}}
{{- $names := list -}}
{{- $containers := list "scheduler" "folders" -}}
{{- range .Values.plugins -}}
{{- if has .name $names -}}
{{- fail (printf "two plugins are called %s" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .container -}}
{{- $container := include "berth.pluginContainer" . -}}
{{- if has $container $containers -}}
{{- fail (printf "the container of plugin %s would be called %s, as another one is: give it a container.name" .name $container) -}}
{{- end -}}
{{- $containers = append $containers $container -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where a sidecar listens and the host dials. */}}
{{- define "berth.pluginEndpoint" -}}
unix:///run/berth/plugins/{{ include "berth.pluginContainer" . }}/plugin.sock
{{- end -}}

{{/* The folder of a sidecar, which no other sidecar sees. */}}
{{- define "berth.pluginMount" -}}
{{- $folder := printf "plugins/%s" (include "berth.pluginContainer" .) -}}
{{- dict "name" "berth" "mountPath" (printf "/run/berth/%s" $folder) "subPath" $folder | toYaml -}}
{{- end -}}

{{/* The folders of the shared volume, as Python strings: the host's, and one for each sidecar. */}}
{{- define "berth.folders" -}}
{{- $folders := list "host" "plugins" -}}
{{- range .Values.plugins -}}
{{- if .container -}}
{{- $folders = append $folders (printf "plugins/%s" (include "berth.pluginContainer" .)) -}}
{{- end -}}
{{- end -}}
{{- range $i, $folder := $folders }}{{ if $i }}, {{ end }}{{ $folder | quote }}{{ end -}}
{{- end -}}

{{/* Refuse an endpoint that the host would refuse, and a sidecar that listens elsewhere than the host dials. */}}
{{- define "berth.validEndpoints" -}}
{{- range $plugin := .Values.plugins -}}
{{- with .endpoint -}}
{{- $problem := "" -}}
{{- if hasPrefix "unix:" . -}}
{{- if not (regexMatch "^unix:///.*[^/]$" .) -}}
{{- $problem = "a socket is named unix:///absolute/path" -}}
{{- else if gt (len (trimPrefix "unix://" .)) 107 -}}
{{- $problem = "the path of a socket has at most 107 bytes; take a shorter one" -}}
{{- end -}}
{{- else if not (regexMatch "^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?):[0-9]{1,5}$" .) -}}
{{- $problem = "write it as unix:///absolute/path or host:port" -}}
{{- else if or (lt (splitList ":" . | last | atoi) 1) (gt (splitList ":" . | last | atoi) 65535) -}}
{{- $problem = "a port is a number from 1 to 65535" -}}
{{- end -}}
{{- if $problem -}}
{{- fail (printf "the endpoint of plugin %s is %q: %s" $plugin.name . $problem) -}}
{{- end -}}
{{- end -}}
{{- with .container -}}
{{- range .env -}}
{{- if eq .name "BERTH_PLUGIN_ENDPOINT" -}}
{{- fail (printf "container.env of plugin %s sets BERTH_PLUGIN_ENDPOINT, which the chart sets to %s, where the host dials: leave it out" $plugin.name (include "berth.pluginEndpoint" $plugin)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The BerthConfiguration; empty if no value sets anything in it. */}}
{{- define "berth.own" -}}
{{- $plugins := list -}}
{{- range .Values.plugins -}}
{{- $entry := omit . "container" "user" -}}
{{- if .container -}}
{{- $entry = merge $entry (dict "endpoint" (include "berth.pluginEndpoint" .)) -}}
{{- end -}}
{{- if .user -}}
{{- $entry = set $entry "allowedUIDs" (append (default list .allowedUIDs) (int .user) | uniq) -}}
{{- end -}}
{{- $plugins = append $plugins $entry -}}
{{- end -}}
{{- if or $plugins .Values.cycleBudget .Values.handle.bindAddress .Values.tracing.endpoint -}}
{{- $own := dict "apiVersion" "config.berth.io/v1alpha1" "kind" "BerthConfiguration" -}}
{{- if $plugins }}{{- $_ := set $own "plugins" $plugins }}{{- end -}}
{{- if .Values.handle.bindAddress }}
{{- $handle := dict "bindAddress" .Values.handle.bindAddress "tls" .Values.handle.tls }}
{{- with .Values.handle.advertiseAddress }}{{- $_ := set $handle "advertiseAddress" . }}{{- end }}
{{- $_ := set $own "handle" $handle }}
{{- end -}}
{{- if .Values.tracing.endpoint }}{{- $_ := set $own "tracing" .Values.tracing }}{{- end -}}
{{- if .Values.cycleBudget }}{{- $_ := set $own "cycleBudget" .Values.cycleBudget }}{{- end -}}
{{- toYaml $own -}}
{{- end -}}
{{- end -}}

{{/* The security context of every container: no privileges. */}}
{{- define "berth.containerSecurity" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end -}}

{{/* A probe of a path of the secure port. The kubelet asks the pod's address, unless the host is another one. */}}
{{- define "berth.probe" -}}
{{- $address := (index . 0).Values.bindAddress -}}
{path: {{ index . 1 }}, port: https, scheme: HTTPS{{ if not (has $address (list "" "0.0.0.0" "::")) }}, host: {{ $address | quote }}{{ end }}}
{{- end }}
