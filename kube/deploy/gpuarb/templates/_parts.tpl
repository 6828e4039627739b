{{/*
Parts that all three DaemonSets have: labels, image, and what their pods have in common.
*/}}

{{/* gpuarb.labels labels an object. */}}
{{- define "gpuarb.labels" -}}
app.kubernetes.io/name: gpuarb
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* gpuarb.image is the image of a container. */}}
{{- define "gpuarb.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* gpuarb.strategy replaces a pod only after the next one runs and waits for its lock, so that an image is never
pulled while a node has no daemon or plug-in. */}}
{{- define "gpuarb.strategy" -}}
minReadySeconds: 2
updateStrategy:
  type: RollingUpdate
  rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- end }}

{{/* gpuarb.pod has the fields of a pod. The daemon grants the rights of the node's root to processes in its own PID namespace
only: to the plug-ins, and to the hooks that the runtime runs on the node. The pods use the node's network because they start
before the network plug-in, whose containers the runtime may refuse until gpuarb-nri runs. Also, the kernel tells of new
programs only there. By default no pod listens on a port. */}}
{{- define "gpuarb.pod" -}}
hostPID: true
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
priorityClassName: {{ .Values.priorityClassName | quote }}
terminationGracePeriodSeconds: 10
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* gpuarb.unprivileged is the security context of a container that needs to be the user root, and nothing else. */}}
{{- define "gpuarb.unprivileged" -}}
runAsUser: 0
runAsGroup: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- with .Values.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
