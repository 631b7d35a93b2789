"""The feature gates of kube-scheduler by version: stage, default, lock, and the gates that each one needs.

`feature_gates` checks and merges the given gates with these tables. kube-scheduler knows the gates of all of
Kubernetes; those that bear on scheduling are in `FEATURE_GATES`, and only these have an effect here, but for
those of `unread_gates`.
`tests/cluster/record_feature_gates.py` records the binary's answer to every gate.

Source: `pkg/features/kube_features.go` of kubernetes v1.38.0-beta.0, v1.37.2 and v1.36.2, and
`features/kube_features.go` of apiserver, apiextensions-apiserver, client-go and component-base at the same
release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Stage(StrEnum):
    """The maturity of a feature gate."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """One gate: its default, its stage, and whether the default can no longer be changed. `requires`: gates
    without which this one cannot be on; a gate that is locked on is left out.
    """

    default: bool
    stage: Stage
    is_locked: bool = False
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovedGate:
    """A gate that a version does not have any more. `since`: the version that removed it. `value`: the value
    that its behaviour keeps. `part_of`: the gate whose value counts in place of `value`; None for none.
    """

    since: str
    value: bool
    part_of: str | None = None


_ALPHA_OFF: Final = FeatureGate(False, Stage.ALPHA)
_BETA_ON: Final = FeatureGate(True, Stage.BETA)
_BETA_OFF: Final = FeatureGate(False, Stage.BETA)
_GA: Final = FeatureGate(True, Stage.GA)
_GA_LOCKED: Final = FeatureGate(True, Stage.GA, is_locked=True)
_DEPRECATED_OFF: Final = FeatureGate(False, Stage.DEPRECATED)
_DEPRECATED_ON: Final = FeatureGate(True, Stage.DEPRECATED)

FEATURE_GATES: Final[Mapping[str, FeatureGate]] = {
    "ClearingNominatedNodeNameAfterBinding": _BETA_ON,
    "CompositePodGroup": FeatureGate(
        False, Stage.ALPHA, requires=("GenericWorkload", "TopologyAwareWorkloadScheduling")
    ),
    "DRAAdminAccess": _GA_LOCKED,
    "DRAConsumableCapacity": _BETA_ON,
    "DRADerivedAttributes": _ALPHA_OFF,
    "DRADeviceBindingConditions": _BETA_ON,
    "DRADeviceCompatibilityGroups": FeatureGate(False, Stage.ALPHA, requires=("DRAPartitionableDevices",)),
    "DRADeviceTaintRules": FeatureGate(True, Stage.GA, requires=("DRADeviceTaints",)),
    "DRADeviceTaints": _GA,
    "DRAExtendedResource": _GA_LOCKED,
    "DRAFractionalCapacityRange": FeatureGate(False, Stage.BETA, requires=("DRAConsumableCapacity",)),
    "DRAListTypeAttributes": _ALPHA_OFF,
    "DRANodeAllocatableResources": _ALPHA_OFF,
    "DRAOptionalNodeOperations": _ALPHA_OFF,
    "DRAPartitionableDevices": _BETA_ON,
    "DRAPrioritizedList": _GA_LOCKED,
    "DRAResourceClaimDeviceStatus": _GA_LOCKED,
    "DRASchedulerFilterTimeout": _BETA_ON,
    "DRAWorkloadResourceClaims": FeatureGate(False, Stage.BETA, requires=("GenericWorkload",)),
    "DynamicResourceAllocation": _GA_LOCKED,
    "GenericWorkload": _BETA_OFF,
    "InPlacePodLevelResourcesVerticalScaling": FeatureGate(True, Stage.BETA, requires=("PodLevelResources",)),
    "InPlacePodVerticalScaling": _GA_LOCKED,
    "InPlacePodVerticalScalingSchedulerPreemption": _ALPHA_OFF,
    "InterPodAffinityHostnameFastPath": _ALPHA_OFF,
    "MatchLabelKeysInPodTopologySpread": _BETA_ON,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": FeatureGate(
        True, Stage.BETA, requires=("MatchLabelKeysInPodTopologySpread",)
    ),
    "NodeDeclaredFeatures": _GA_LOCKED,
    "NodeInclusionPolicyInPodTopologySpread": _GA_LOCKED,
    "NominatedNodeNameForExpectation": _BETA_ON,
    "OpportunisticBatching": _BETA_ON,
    "PodGroupPreemptionPolicy": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "PodLevelResources": _BETA_ON,
    "SchedulerAsyncAPICalls": _BETA_OFF,
    "SchedulerAsyncPreemption": _BETA_ON,
    "SchedulerPopFromBackoffQ": _BETA_ON,
    "SchedulerPreQueueingHints": _ALPHA_OFF,
    "StorageCapacityScoring": _BETA_ON,
    "TaintTolerationComparisonOperators": _ALPHA_OFF,
    "TopologyAwareWorkloadScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "VolumeLimitScaling": _BETA_ON,
}
"""The gates of 1.37 that bear on scheduling."""

_OTHER_ALPHA: Final = (
    "APIServerWebhookAuthenticationToken",
    "APIServingWithRoutine",
    "AtomicWriteVolumeUserFields",
    "CBORServingAndStorage",
    "CPUManagerPolicyAlphaOptions",
    "CRIListStreaming",
    "CSIVolumeHealth",
    "ClientsAllowCBOR",
    "ClientsPreferCBOR",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ConsistentListFromCacheSkipTimeoutFallback",
    "ContainerStopSignals",
    "CrossNamespaceVolumeDataSource",
    "DRAPartitionableDevicesType",
    "DRAResourcePoolStatus",
    "DefaultPodSysctls",
    "EmptyDirVolumeMode",
    "EventedPLEG",
    "EvictionRequestAPI",
    "GRPCContainerProbeTLS",
    "H2CContainerProbe",
    "ImageVolumeWithDigest",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    "KubeProxyNFTablesLocalhostNodePorts",
    "KubeletAllocatedPodsEndpoint",
    "LoggingAlphaOptions",
    "MutablePVNodeAffinity",
    "NodeLifecycleConditions",
    "PodLogsQuerySplitStreams",
    "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RuntimeClassInImageCriApi",
    "ShardedListAndWatch",
    "StatefulSetRecreateStrategy",
    "StorageVersionAPI",
    "TopologyManagerPolicyAlphaOptions",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
    "WindowsCPUAndMemoryAffinity",
    "WorkloadWithJob",
)
_OTHER_BETA_OFF: Final = (
    "CoordinatedLeaderElection",
    "LocalStorageCapacityIsolationFSQuotaMonitoring",
    "PodAndContainerStatsFromCRI",
    "PodLevelResourceManagers",
)
_OTHER_BETA_ON: Final = (
    "APIResponseCompression",
    "APIServerIdentity",
    "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion",
    "AtomicFIFO",
    "AuthorizePodWebsocketUpgradeCreatePermission",
    "CPUManagerPolicyBetaOptions",
    "CRDObservedGenerationTracking",
    "ClientsAllowCARotation",
    "ClientsAllowTLSCacheGC",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConcurrentWatchObjectDecode",
    "ConstrainedImpersonation",
    "ContainerCheckpoint",
    "ContainerRestartRules",
    "ContextualLogging",
    "DRAResourceClaimGranularStatusAuthorization",
    "DeclarativeValidationBeta",
    "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency",
    "EnvFiles",
    "EtcdRangeStream",
    "ExcludeAdmissionWebhookVirtualResources",
    "ExtendWebSocketsToKubelet",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HPAGeneration",
    "HPAOptimizedSelectorStore",
    "HPAScaleToZero",
    "HugepageAwareEviction",
    "InOrderInformersBatchProcess",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "KubeletInUserNamespace",
    "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders",
    "ListFromCacheSnapshot",
    "LoggingBetaOptions",
    "ManifestBasedAdmissionControlConfig",
    "MaxUnavailableStatefulSet",
    "MemoryQoS",
    "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "NFTablesNetlink",
    "NativeHistograms",
    "NodeControllerLeaseCircuitBreaker",
    "OpenAPIEnums",
    "PersistentVolumeClaimUnusedSinceTime",
    "PodDeletionCost",
    "PodLevelResourcesFixDefaulting",
    "PodLevelResourcesFixKubeletQOSClass",
    "PodTopologyLabelsAdmission",
    "PodsAPI",
    "PortForwardWebsockets",
    "ReloadKubeletClientCAFile",
    "ReloadKubeletServerCertificateFile",
    "RemoteRequestHeaderUID",
    "ResourceHealthStatus",
    "ResourceHealthStatusMessage",
    "RestartAllContainersOnContainerExits",
    "RotateKubeletServerCertificate",
    "ServiceAccountNodeAudienceRestriction",
    "SizeBasedListCostEstimate",
    "StaleControllerConsistencyDaemonSet",
    "StaleControllerConsistencyHPA",
    "StaleControllerConsistencyJob",
    "StaleControllerConsistencyReplicaSet",
    "StaleControllerConsistencyStatefulSet",
    "StatefulSetSemanticRevisionComparison",
    "StorageVersionHash",
    "StrictIPCIDRValidation",
    "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics",
    "TokenRequestServiceAccountUIDValidation",
    "TopologyManagerPolicyBetaOptions",
    "TranslateStreamCloseWebsocketRequests",
    "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy",
    "UnlockWhileProcessingFIFO",
    "WatchList",
    "WatchListClient",
    "WatchListCompression",
    "WebhookRoundTripLoadBalancing",
    "WindowsGracefulNodeShutdown",
)
_OTHER_DEPRECATED_LOCKED_OFF: Final = (
    "AllowOverwriteTerminationGracePeriodSeconds",
    "DeclarativeValidationTakeover",
    "GitRepoVolumeDriver",
    "SeparateCacheWatchRPC",
)
_OTHER_DEPRECATED_LOCKED_ON: Final = (
    "AggregatedDiscoveryRemoveBetaType",
    "DisableCPUQuotaWithExclusiveCPUs",
    "DisableNodeKubeProxyVersion",
)
_OTHER_DEPRECATED_OFF: Final = (
    "AllowDNSOnlyNodeCSR",
    "AllowInsecureKubeletCertificateSigningRequests",
    "ChangeContainerStatusOnKubeletRestart",
    "KMSv1",
    "KubeletRegistrationGetOnExistsOnly",
    "WindowsHostNetwork",
)
_OTHER_DEPRECATED_ON: Final = (
    "KubeProxyIPVS",
    "KubeletPodResourcesListUseActivePods",
    "ServiceCIDRStatusFieldWiping",
    "StorageNamespaceIndex",
)
_OTHER_GA: Final = (
    "AllowServiceExternalIPs",
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "CustomCPUCFSQuotaPeriod",
    "InformerResourceVersion",
    "MutatingAdmissionPolicy",
    "PodCertificateRequest",
    "SELinuxMount",
    "StorageVersionMigrator",
)
_OTHER_GA_LOCKED: Final = (
    "CPUManagerPolicyOptions",
    "CRDValidationRatcheting",
    "CSIServiceAccountTokenSecrets",
    "CustomResourceFieldSelectors",
    "DeclarativeValidation",
    "DisableAllocatorDualWrite",
    "ExecProbeTimeout",
    "ExternalServiceAccountTokenSigner",
    "HPAConfigurableTolerance",
    "HostnameOverride",
    "ImageMaximumGCAge",
    "ImageVolume",
    "InOrderInformers",
    "InPlacePodVerticalScalingInitContainers",
    "JobManagedBy",
    "KubeletCgroupDriverFromCRI",
    "KubeletFineGrainedAuthz",
    "KubeletPSI",
    "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet",
    "KubeletTracing",
    "MatchLabelKeysInPodAffinity",
    "MultiCIDRServiceAllocator",
    "MutableCSINodeAllocatableCount",
    "NFTablesProxyMode",
    "NodeLogQuery",
    "NodeSwap",
    "PLEGOnDemandRelist",
    "PodObservedGenerationTracking",
    "PodReadyToStartContainersCondition",
    "PodSchedulingReadiness",
    "PreferSameTrafficDistribution",
    "ProcMountType",
    "RecoverVolumeExpansionFailure",
    "RecursiveReadOnlyMounts",
    "RelaxedEnvironmentVariableValidation",
    "RelaxedServiceNameValidation",
    "SELinuxChangePolicy",
    "SELinuxMountReadWriteOncePod",
    "SeparateTaintEvictionController",
    "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding",
    "ServiceAccountTokenNodeBindingValidation",
    "ServiceAccountTokenPodNodeInfo",
    "SupplementalGroupsPolicy",
    "SystemdWatchdog",
    "TopologyManagerPolicyOptions",
    "UserNamespacesSupport",
    "VolumeAttributesClass",
    "WatchCacheInitializationPostStartHook",
    "WinDSR",
    "WinOverlay",
)
_OTHER_REQUIRES: Final[Mapping[str, tuple[str, ...]]] = {
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRAPartitionableDevicesType": ("DRAPartitionableDevices", "DRAResourcePoolStatus"),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "NodeControllerLeaseCircuitBreaker": ("AtomicFIFO",),
    "PodLevelResourceManagers": ("PodLevelResources",),
    "PodLevelResourcesFixDefaulting": ("PodLevelResources",),
    "PodLevelResourcesFixKubeletQOSClass": ("PodLevelResources",),
    "ResourceHealthStatusMessage": ("ResourceHealthStatus",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules",),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyHPA": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
    "StorageVersionAPI": ("APIServerIdentity",),
    "UnknownVersionInteroperabilityProxy": ("APIServerIdentity",),
    "WindowsGracefulNodeShutdown": ("GracefulNodeShutdown",),
    "WorkloadWithJob": ("GenericWorkload",),
}
_OTHERS: Final[Mapping[str, FeatureGate]] = {
    name: FeatureGate(default, stage, is_locked, _OTHER_REQUIRES.get(name, ()))
    for names, default, stage, is_locked in (
        (_OTHER_ALPHA, False, Stage.ALPHA, False),
        (_OTHER_BETA_OFF, False, Stage.BETA, False),
        (_OTHER_BETA_ON, True, Stage.BETA, False),
        (_OTHER_DEPRECATED_LOCKED_OFF, False, Stage.DEPRECATED, True),
        (_OTHER_DEPRECATED_LOCKED_ON, True, Stage.DEPRECATED, True),
        (_OTHER_DEPRECATED_OFF, False, Stage.DEPRECATED, False),
        (_OTHER_DEPRECATED_ON, True, Stage.DEPRECATED, False),
        (_OTHER_GA, True, Stage.GA, False),
        (_OTHER_GA_LOCKED, True, Stage.GA, True),
    )
    for name in names
}
_ADDED_IN_1_37: Final = frozenset(
    {
        "APIServerWebhookAuthenticationToken",
        "AtomicWriteVolumeUserFields",
        "CompositePodGroup",
        "ConsistentListFromCacheSkipTimeoutFallback",
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAFractionalCapacityRange",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
        "DefaultPodSysctls",
        "EmptyDirVolumeMode",
        "EtcdRangeStream",
        "EvictionRequestAPI",
        "ExcludeAdmissionWebhookVirtualResources",
        "GRPCContainerProbeTLS",
        "H2CContainerProbe",
        "HPAGeneration",
        "HPAOptimizedSelectorStore",
        "HugepageAwareEviction",
        "InPlacePodVerticalScalingMemoryBackedVolumes",
        "InPlacePodVerticalScalingSchedulerPreemption",
        "InterPodAffinityHostnameFastPath",
        "KubeProxyIPVS",
        "KubeProxyNFTablesLocalhostNodePorts",
        "KubeletAllocatedPodsEndpoint",
        "NFTablesNetlink",
        "NodeControllerLeaseCircuitBreaker",
        "NodeLifecycleConditions",
        "PodGroupPreemptionPolicy",
        "PodLevelResourcesFixDefaulting",
        "PodLevelResourcesFixKubeletQOSClass",
        "SchedulerPreQueueingHints",
        "StaleControllerConsistencyHPA",
        "StatefulSetRecreateStrategy",
        "VolumeBindMountOptions",
        "WatchListCompression",
        "WebhookRoundTripLoadBalancing",
    }
)
_OF_1_36: Final[Mapping[str, FeatureGate]] = {
    "APIServerTracing": _GA_LOCKED,
    "AllowUnsafeMalformedObjectDeletion": _ALPHA_OFF,
    "AnonymousAuthConfigurableEndpoints": _GA_LOCKED,
    "AnyVolumeDataSource": _GA_LOCKED,
    "AuthorizeNodeWithSelectors": _GA_LOCKED,
    "AuthorizeWithSelectors": _GA_LOCKED,
    "BtreeWatchCache": _GA_LOCKED,
    "ClusterTrustBundle": _BETA_OFF,
    "ClusterTrustBundleProjection": FeatureGate(False, Stage.BETA, requires=("ClusterTrustBundle",)),
    "ConcurrentWatchObjectDecode": _BETA_OFF,
    "ConsistentListFromCache": _GA_LOCKED,
    "DRADeviceBindingConditions": FeatureGate(True, Stage.BETA, requires=("DRAResourceClaimDeviceStatus",)),
    "DRADeviceTaintRules": FeatureGate(False, Stage.BETA, requires=("DRADeviceTaints",)),
    "DRADeviceTaints": _BETA_ON,
    "DRAExtendedResource": _BETA_ON,
    "DRAPrioritizedList": _GA,
    "DRAResourceClaimDeviceStatus": _BETA_ON,
    "DRAResourceClaimGranularStatusAuthorization": FeatureGate(
        True, Stage.BETA, requires=("DRAResourceClaimDeviceStatus",)
    ),
    "DRAWorkloadResourceClaims": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "DeclarativeValidationTakeover": _DEPRECATED_OFF,
    "DisableCPUQuotaWithExclusiveCPUs": _DEPRECATED_ON,
    "ExtendWebSocketsToKubelet": FeatureGate(True, Stage.BETA, requires=("NodeDeclaredFeatures",)),
    "GangScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "GenericWorkload": _ALPHA_OFF,
    "HPAConfigurableTolerance": _BETA_ON,
    "HPAScaleToZero": _ALPHA_OFF,
    "HostnameOverride": _BETA_ON,
    "InPlacePodLevelResourcesVerticalScaling": FeatureGate(
        True, Stage.BETA, requires=("NodeDeclaredFeatures", "PodLevelResources")
    ),
    "InPlacePodVerticalScalingInitContainers": FeatureGate(
        True, Stage.BETA, requires=("NodeDeclaredFeatures",)
    ),
    "JobBackoffLimitPerIndex": _GA_LOCKED,
    "JobPodReplacementPolicy": _GA_LOCKED,
    "JobSuccessPolicy": _GA_LOCKED,
    "KubeletInUserNamespace": _ALPHA_OFF,
    "LogarithmicScaleDown": _GA_LOCKED,
    "ManifestBasedAdmissionControlConfig": _ALPHA_OFF,
    "MaxUnavailableStatefulSet": _BETA_OFF,
    "MemoryQoS": _ALPHA_OFF,
    "NativeHistograms": _ALPHA_OFF,
    "NodeDeclaredFeatures": _BETA_ON,
    "OrderedNamespaceDeletion": _GA_LOCKED,
    "PLEGOnDemandRelist": _BETA_ON,
    "PersistentVolumeClaimUnusedSinceTime": _ALPHA_OFF,
    "PodAndContainerStatsFromCRI": _ALPHA_OFF,
    "PodCertificateRequest": _BETA_OFF,
    "PodLevelResourceManagers": _ALPHA_OFF,
    "PodLifecycleSleepAction": _GA_LOCKED,
    "PodLifecycleSleepActionAllowZero": _GA_LOCKED,
    "PodReadyToStartContainersCondition": _BETA_ON,
    "PodsAPI": _ALPHA_OFF,
    "PreventStaticPodAPIReferences": _BETA_ON,
    "RelaxedDNSSearchValidation": _GA_LOCKED,
    "RelaxedServiceNameValidation": _BETA_ON,
    "ResilientWatchCacheInitialization": _GA_LOCKED,
    "RestartAllContainersOnContainerExits": FeatureGate(
        True, Stage.BETA, requires=("ContainerRestartRules", "NodeDeclaredFeatures")
    ),
    "RetryGenerateName": _GA_LOCKED,
    "SELinuxMount": _BETA_OFF,
    "SchedulerQueueingHints": _GA_LOCKED,
    "SidecarContainers": _GA_LOCKED,
    "StorageCapacityScoring": _ALPHA_OFF,
    "StorageVersionMigrator": _BETA_OFF,
    "StreamingCollectionEncodingToJSON": _GA_LOCKED,
    "StreamingCollectionEncodingToProtobuf": _GA_LOCKED,
    "StructuredAuthenticationConfiguration": _GA_LOCKED,
    "VolumeLimitScaling": _ALPHA_OFF,
    "WatchCacheInitializationPostStartHook": _BETA_ON,
    "WorkloadAwarePreemption": FeatureGate(False, Stage.ALPHA, requires=("GangScheduling",)),
}
"""The gates that 1.37 removed, and those that it changed, as they are in 1.36."""

_REMOVED_IN_1_38: Final = frozenset(
    {
        "AggregatedDiscoveryRemoveBetaType",
        "AllowOverwriteTerminationGracePeriodSeconds",
        "CRDValidationRatcheting",
        "CustomResourceFieldSelectors",
        "DisableAllocatorDualWrite",
        "DynamicResourceAllocation",
        "ExecProbeTimeout",
        "InPlacePodVerticalScaling",
        "JobManagedBy",
        "KubeletTracing",
        "MatchLabelKeysInPodAffinity",
        "MultiCIDRServiceAllocator",
        "NFTablesProxyMode",
        "NodeSwap",
        "PodGroupPreemptionPolicy",
        "PodSchedulingReadiness",
        "PreferSameTrafficDistribution",
        "RecoverVolumeExpansionFailure",
        "SeparateTaintEvictionController",
        "ServiceAccountTokenJTI",
        "ServiceAccountTokenNodeBinding",
        "ServiceAccountTokenNodeBindingValidation",
        "ServiceAccountTokenPodNodeInfo",
        "SupplementalGroupsPolicy",
        "SystemdWatchdog",
        "WinDSR",
        "WinOverlay",
        "WindowsHostNetwork",
    }
)
_OF_1_38: Final[Mapping[str, FeatureGate]] = {
    "AllocatorPoolBufferCap": _BETA_ON,
    "AtomicWriteVolumeUserFields": _BETA_ON,
    "AuthorizePodWebsocketUpgradeCreatePermission": _GA_LOCKED,
    "CertificateSigningRequestMLDSA": _BETA_OFF,
    "ClientsAllowConnectionPool": _BETA_ON,
    "CloudNodeAdditionalLabelsReconciliation": _ALPHA_OFF,
    "CompositePodGroup": FeatureGate(
        False, Stage.BETA, requires=("GenericWorkload", "TopologyAwareWorkloadScheduling")
    ),
    "ConditionalAuthorization": _ALPHA_OFF,
    "ConsistentGetFromCache": _ALPHA_OFF,
    "DRAConsumableCapacity": _GA,
    "DRADeviceBindingConditions": _GA_LOCKED,
    "DRADeviceCompatibilityGroups": _ALPHA_OFF,
    "DRADeviceTaintRules": _GA_LOCKED,
    "DRADeviceTaints": _GA_LOCKED,
    "DRAFractionalCapacityRange": FeatureGate(True, Stage.GA, requires=("DRAConsumableCapacity",)),
    "DRAPartitionableDevices": _GA_LOCKED,
    "DRAPartitionableDevicesType": FeatureGate(False, Stage.ALPHA, requires=("DRAResourcePoolStatus",)),
    "DynamicNodeLocalEphemeralVolumes": _ALPHA_OFF,
    "EnvFiles": _GA_LOCKED,
    "ExtendWebSocketsToKubelet": _GA_LOCKED,
    "HPAGeneration": _GA_LOCKED,
    "KubeAPIServerWorkloadsTrust": FeatureGate(
        False, Stage.ALPHA, requires=("ClusterTrustBundle", "ClusterTrustBundleProjection")
    ),
    "KubeProxyNFTablesLocalhostNodePorts": _BETA_ON,
    "ManagedFieldsOptOut": _ALPHA_OFF,
    "ManagedFieldsOptOutClient": _ALPHA_OFF,
    "OpenAPIV2LazyBuild": _BETA_ON,
    "PodCertificateMLDSA": _BETA_OFF,
    "PortForwardWebsockets": _GA_LOCKED,
    "RequestCostAggregation": _ALPHA_OFF,
    "SchedulerPreQueueingHints": _BETA_ON,
    "SecurityProfileOCI": _ALPHA_OFF,
    "ServiceAccountTokenMLDSA": _BETA_OFF,
    "ShardedListAndWatch": _BETA_ON,
    "StatefulSetRecreateStrategy": _BETA_ON,
    "StrictIPCIDRValidation": _GA_LOCKED,
    "TopologyAwareWorkloadScheduling": FeatureGate(False, Stage.BETA, requires=("GenericWorkload",)),
    "TranslateStreamCloseWebsocketRequests": _GA_LOCKED,
    "WatchFromStorageWithoutPrevKV": _BETA_ON,
    "WatchListClientConcurrentDecoding": _BETA_ON,
    "WindowsCPUAndMemoryAffinity": _BETA_ON,
}
"""The gates that 1.38 added, and those that it changed."""

KNOWN_GATES: Final[Mapping[str, FeatureGate]] = {**FEATURE_GATES, **_OTHERS}
"""All gates that kube-scheduler 1.37 knows."""
KNOWN_GATES_1_36: Final[Mapping[str, FeatureGate]] = {
    **{name: gate for name, gate in KNOWN_GATES.items() if name not in _ADDED_IN_1_37},
    **_OF_1_36,
}
"""All gates that kube-scheduler 1.36 knows."""
SCHEDULING_GATES: Final = frozenset({*FEATURE_GATES, "GangScheduling", "WorkloadAwarePreemption"})
"""The gates that bear on scheduling in any version. The tables have the others because a command line may
name them all the same."""
KNOWN_GATES_1_38: Final[Mapping[str, FeatureGate]] = {
    **{name: gate for name, gate in KNOWN_GATES.items() if name not in _REMOVED_IN_1_38},
    **_OF_1_38,
}
"""All gates that kube-scheduler 1.38 knows."""
PART_OF: Final[Mapping[str, str]] = {
    "GangScheduling": "GenericWorkload",
    "PodGroupPreemptionPolicy": "GenericWorkload",
    "WorkloadAwarePreemption": "GenericWorkload",
}
"""By removed gate: the gate whose value counts in its place."""
