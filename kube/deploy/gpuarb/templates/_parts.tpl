{{/*
Definitions that the three DaemonSets share: labels, image, strategy of upgrades, fields of the pods, security context.
*/}}

{{/* gpuarb.labels has the labels of each object of the chart. */}}
{{- define "gpuarb.labels" -}}
app.kubernetes.io/name: gpuarb
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* gpuarb.image has a container's image and pull policy. */}}
{{- define "gpuarb.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* gpuarb.strategy is the order of an upgrade on a node: the new pod starts and waits for the lock that the old pod holds,
and then the old pod ends. So the daemon or plug-in is not away while the new image is pulled. */}}
{{- define "gpuarb.strategy" -}}
minReadySeconds: 2
updateStrategy:
  type: RollingUpdate
  rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- end }}

{{/* gpuarb.pod has the fields that all pods share. They use the node's PID namespace, because the daemon grants the rights of
root only to processes in its own PID namespace, and the plug-ins and the runtime's hooks need these rights. The pods use the
node's network for two reasons. They must start before the network plug-in, whose containers the runtime may refuse until
gpuarb-nri runs. The kernel reports to the daemon that a process executes a program only in the node's network namespace.
By default no pod listens on a port. */}}
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

{{/* gpuarb.unprivileged is the security context of a container that runs as root, without any capability. */}}
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
