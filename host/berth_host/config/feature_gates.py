"""Feature gates of kube-scheduler 1.36: the ones that matter to scheduling; checks the settings of all.

Given gates are checked and merged here, by the loader; defaulting, validation and the default plugin
table then call `is_enabled`. The other gates belong to other components, and a command line of
kube-scheduler's may name them all the same: they are known by stage and default, and have no effect.
Every row is compared with the binary's answer; `tests/cluster/record_feature_gates.py` records it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_host.config.errors import ConfigurationError, FieldErrorType, Finding, nearest


class Stage(StrEnum):
    """How settled a feature is."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """One gate: its default, its stage, and whether the default can no longer be changed."""

    default: bool
    stage: Stage
    is_locked: bool = False
    requires: tuple[str, ...] = ()


_ALPHA_OFF: Final = FeatureGate(False, Stage.ALPHA)
_BETA_ON: Final = FeatureGate(True, Stage.BETA)
_BETA_OFF: Final = FeatureGate(False, Stage.BETA)
_GA: Final = FeatureGate(True, Stage.GA)
_GA_LOCKED: Final = FeatureGate(True, Stage.GA, is_locked=True)

FEATURE_GATES: Final[Mapping[str, FeatureGate]] = {
    "ClearingNominatedNodeNameAfterBinding": _BETA_ON,
    "DRAAdminAccess": _GA_LOCKED,
    "DRAConsumableCapacity": _BETA_ON,
    "DRADeviceBindingConditions": FeatureGate(True, Stage.BETA, requires=("DRAResourceClaimDeviceStatus",)),
    "DRADeviceTaints": _BETA_ON,
    "DRAExtendedResource": _BETA_ON,
    "DRANodeAllocatableResources": _ALPHA_OFF,
    "DRAPartitionableDevices": _BETA_ON,
    "DRAPrioritizedList": _GA,
    "DRAResourceClaimDeviceStatus": _BETA_ON,
    "DRASchedulerFilterTimeout": _BETA_ON,
    "DynamicResourceAllocation": _GA_LOCKED,
    "GangScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "GenericWorkload": _ALPHA_OFF,
    "InPlacePodLevelResourcesVerticalScaling": FeatureGate(
        True, Stage.BETA, requires=("NodeDeclaredFeatures", "PodLevelResources")
    ),
    "InPlacePodVerticalScaling": _GA_LOCKED,
    "MatchLabelKeysInPodTopologySpread": _BETA_ON,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": FeatureGate(
        True, Stage.BETA, requires=("MatchLabelKeysInPodTopologySpread",)
    ),
    "NodeDeclaredFeatures": _BETA_ON,
    "NodeInclusionPolicyInPodTopologySpread": _GA_LOCKED,
    "NominatedNodeNameForExpectation": _BETA_ON,
    "OpportunisticBatching": _BETA_ON,
    "PodLevelResources": _BETA_ON,
    "SchedulerAsyncAPICalls": _BETA_OFF,
    "SchedulerAsyncPreemption": _BETA_ON,
    "SchedulerPopFromBackoffQ": _BETA_ON,
    "SchedulerQueueingHints": _GA_LOCKED,
    "StorageCapacityScoring": _ALPHA_OFF,
    "TaintTolerationComparisonOperators": _ALPHA_OFF,
    "TopologyAwareWorkloadScheduling": FeatureGate(False, Stage.ALPHA, requires=("GenericWorkload",)),
    "VolumeLimitScaling": _ALPHA_OFF,
    "WorkloadAwarePreemption": FeatureGate(False, Stage.ALPHA, requires=("GangScheduling",)),
}

_OTHER_ALPHA: Final = (
    "APIServingWithRoutine",
    "AllowUnsafeMalformedObjectDeletion",
    "CBORServingAndStorage",
    "CPUManagerPolicyAlphaOptions",
    "CRIListStreaming",
    "CSIVolumeHealth",
    "ClientsAllowCBOR",
    "ClientsPreferCBOR",
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ContainerStopSignals",
    "CrossNamespaceVolumeDataSource",
    "DRAListTypeAttributes",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "EventedPLEG",
    "HPAScaleToZero",
    "ImageVolumeWithDigest",
    "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory",
    "KubeletInUserNamespace",
    "LoggingAlphaOptions",
    "ManifestBasedAdmissionControlConfig",
    "MemoryQoS",
    "MutablePVNodeAffinity",
    "NativeHistograms",
    "PersistentVolumeClaimUnusedSinceTime",
    "PodAndContainerStatsFromCRI",
    "PodLevelResourceManagers",
    "PodLogsQuerySplitStreams",
    "PodsAPI",
    "QOSReserved",
    "ReduceDefaultCrashLoopBackOffDecay",
    "RuntimeClassInImageCriApi",
    "ShardedListAndWatch",
    "StorageVersionAPI",
    "TopologyManagerPolicyAlphaOptions",
    "UserNamespacesHostNetworkSupport",
    "WindowsCPUAndMemoryAffinity",
    "WorkloadWithJob",
)
_OTHER_BETA_OFF: Final = (
    "ClusterTrustBundle",
    "ClusterTrustBundleProjection",
    "ConcurrentWatchObjectDecode",
    "CoordinatedLeaderElection",
    "DRADeviceTaintRules",
    "LocalStorageCapacityIsolationFSQuotaMonitoring",
    "MaxUnavailableStatefulSet",
    "PodCertificateRequest",
    "SELinuxMount",
    "StorageVersionMigrator",
)
_OTHER_BETA_ON: Final = (
    "APIResponseCompression",
    "APIServerIdentity",
    "AllowParsingUserUIDFromCertAuth",
    "AtomicFIFO",
    "AuthorizePodWebsocketUpgradeCreatePermission",
    "CPUManagerPolicyBetaOptions",
    "CRDObservedGenerationTracking",
    "ClientsAllowCARotation",
    "ClientsAllowTLSCacheGC",
    "ComponentFlagz",
    "ComponentStatusz",
    "ConstrainedImpersonation",
    "ContainerCheckpoint",
    "ContainerRestartRules",
    "ContextualLogging",
    "DRAResourceClaimGranularStatusAuthorization",
    "DeclarativeValidationBeta",
    "DeploymentReplicaSetTerminatingReplicas",
    "DetectCacheInconsistency",
    "EnvFiles",
    "ExtendWebSocketsToKubelet",
    "GracefulNodeShutdown",
    "GracefulNodeShutdownBasedOnPodPriority",
    "HPAConfigurableTolerance",
    "HostnameOverride",
    "InOrderInformersBatchProcess",
    "InPlacePodVerticalScalingInitContainers",
    "KubeletCrashLoopBackOffMax",
    "KubeletEnsureSecretPulledImages",
    "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders",
    "ListFromCacheSnapshot",
    "LoggingBetaOptions",
    "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs",
    "OpenAPIEnums",
    "PLEGOnDemandRelist",
    "PodDeletionCost",
    "PodReadyToStartContainersCondition",
    "PodTopologyLabelsAdmission",
    "PortForwardWebsockets",
    "PreventStaticPodAPIReferences",
    "RelaxedServiceNameValidation",
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
    "WatchCacheInitializationPostStartHook",
    "WatchList",
    "WatchListClient",
    "WindowsGracefulNodeShutdown",
)
_OTHER_DEPRECATED_LOCKED_OFF: Final = (
    "AllowOverwriteTerminationGracePeriodSeconds",
    "GitRepoVolumeDriver",
    "SeparateCacheWatchRPC",
)
_OTHER_DEPRECATED_LOCKED_ON: Final = (
    "AggregatedDiscoveryRemoveBetaType",
    "DisableNodeKubeProxyVersion",
)
_OTHER_DEPRECATED_OFF: Final = (
    "AllowDNSOnlyNodeCSR",
    "AllowInsecureKubeletCertificateSigningRequests",
    "ChangeContainerStatusOnKubeletRestart",
    "DeclarativeValidationTakeover",
    "KMSv1",
    "KubeletRegistrationGetOnExistsOnly",
    "WindowsHostNetwork",
)
_OTHER_DEPRECATED_ON: Final = (
    "DisableCPUQuotaWithExclusiveCPUs",
    "KubeletPodResourcesListUseActivePods",
    "ServiceCIDRStatusFieldWiping",
    "StorageNamespaceIndex",
)
_OTHER_GA: Final = (
    "AllowServiceExternalIPs",
    "CustomCPUCFSQuotaPeriod",
    "InformerResourceVersion",
    "MutatingAdmissionPolicy",
)
_OTHER_GA_LOCKED: Final = (
    "APIServerTracing",
    "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource",
    "AuthorizeNodeWithSelectors",
    "AuthorizeWithSelectors",
    "BtreeWatchCache",
    "CPUManagerPolicyOptions",
    "CRDValidationRatcheting",
    "CSIServiceAccountTokenSecrets",
    "ConsistentListFromCache",
    "CustomResourceFieldSelectors",
    "DeclarativeValidation",
    "DisableAllocatorDualWrite",
    "ExecProbeTimeout",
    "ExternalServiceAccountTokenSigner",
    "ImageMaximumGCAge",
    "ImageVolume",
    "InOrderInformers",
    "JobBackoffLimitPerIndex",
    "JobManagedBy",
    "JobPodReplacementPolicy",
    "JobSuccessPolicy",
    "KubeletCgroupDriverFromCRI",
    "KubeletFineGrainedAuthz",
    "KubeletPSI",
    "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet",
    "KubeletTracing",
    "LogarithmicScaleDown",
    "MatchLabelKeysInPodAffinity",
    "MultiCIDRServiceAllocator",
    "MutableCSINodeAllocatableCount",
    "NFTablesProxyMode",
    "NodeLogQuery",
    "NodeSwap",
    "OrderedNamespaceDeletion",
    "PodLifecycleSleepAction",
    "PodLifecycleSleepActionAllowZero",
    "PodObservedGenerationTracking",
    "PodSchedulingReadiness",
    "PreferSameTrafficDistribution",
    "ProcMountType",
    "RecoverVolumeExpansionFailure",
    "RecursiveReadOnlyMounts",
    "RelaxedDNSSearchValidation",
    "RelaxedEnvironmentVariableValidation",
    "ResilientWatchCacheInitialization",
    "RetryGenerateName",
    "SELinuxChangePolicy",
    "SELinuxMountReadWriteOncePod",
    "SeparateTaintEvictionController",
    "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding",
    "ServiceAccountTokenNodeBindingValidation",
    "ServiceAccountTokenPodNodeInfo",
    "SidecarContainers",
    "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf",
    "StructuredAuthenticationConfiguration",
    "SupplementalGroupsPolicy",
    "SystemdWatchdog",
    "TopologyManagerPolicyOptions",
    "UserNamespacesSupport",
    "VolumeAttributesClass",
    "WinDSR",
    "WinOverlay",
)
_OTHER_REQUIRES: Final[Mapping[str, tuple[str, ...]]] = {
    "ClusterTrustBundleProjection": ("ClusterTrustBundle",),
    "DRAResourceClaimGranularStatusAuthorization": ("DRAResourceClaimDeviceStatus",),
    "DRAWorkloadResourceClaims": ("GenericWorkload",),
    "ExtendWebSocketsToKubelet": ("NodeDeclaredFeatures",),
    "GracefulNodeShutdownBasedOnPodPriority": ("GracefulNodeShutdown",),
    "InPlacePodVerticalScalingInitContainers": ("NodeDeclaredFeatures",),
    "ResourceHealthStatusMessage": ("ResourceHealthStatus",),
    "RestartAllContainersOnContainerExits": ("ContainerRestartRules", "NodeDeclaredFeatures"),
    "StaleControllerConsistencyDaemonSet": ("AtomicFIFO",),
    "StaleControllerConsistencyJob": ("AtomicFIFO",),
    "StaleControllerConsistencyReplicaSet": ("AtomicFIFO",),
    "StaleControllerConsistencyStatefulSet": ("AtomicFIFO",),
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
KNOWN_GATES: Final[Mapping[str, FeatureGate]] = {**FEATURE_GATES, **_OTHERS}
"""All gates that kube-scheduler 1.36 knows."""

_ALL_OF_STAGE: Final[Mapping[str, Stage]] = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates in effect: the defaults with the given ones on top. `warnings`: given gates that a later
    release removes."""

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    def is_enabled(self, gate: str) -> bool:
        """Whether a gate of the table is on."""
        return self.values[gate]


def resolve_feature_gates(
    given: Mapping[str, bool], *, source: str, known: Mapping[str, FeatureGate] = KNOWN_GATES
) -> FeatureGates:
    """Merge given gates over the defaults; `AllAlpha` and `AllBeta` stand for all gates of that stage.

    `known`: all gates of the version that the host is.

    Raises ConfigurationError for an unknown gate, a gate whose value is locked, and a gate that is on while
    a gate that it depends on is off.
    """
    findings = [*_unknown(given, known), *_locked(given, known)]
    if findings:
        raise ConfigurationError("validation", findings, source=source)
    values = {name: gate.default for name, gate in known.items()}
    for name, stage in _ALL_OF_STAGE.items():
        if name in given:
            values |= {
                gate_name: given[name]
                for gate_name, gate in known.items()
                if gate.stage is stage and not gate.is_locked
            }
    values |= {name: value for name, value in given.items() if name in known}
    findings = _missing_requirements(values, known)
    if findings:
        raise ConfigurationError("validation", findings, source=source)
    return FeatureGates(values, tuple(_leaving(given, known)))


def _unknown(given: Mapping[str, bool], gates: Mapping[str, FeatureGate]) -> list[Finding]:
    known = (*gates, *_ALL_OF_STAGE)
    return [
        Finding(
            f"unrecognized feature gate: {name}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.NOT_SUPPORTED,
            suggestion=nearest(name, known),
        )
        for name in given
        if name not in known
    ]


def _locked(given: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[Finding]:
    return [
        Finding(
            f"cannot set feature gate {name} to {str(value).lower()}, "
            f"feature is locked to {str(known[name].default).lower()}",
            field=f"featureGates[{name}]",
            type=FieldErrorType.INVALID,
        )
        for name, value in given.items()
        if name in known and known[name].is_locked and value != known[name].default
    ]


def _missing_requirements(values: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[Finding]:
    found = []
    for name, gate in known.items():
        off = [required for required in gate.requires if not values[required]]
        if values[name] and off:
            text = f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]"
            found.append(Finding(text, field=f"featureGates[{name}]", type=FieldErrorType.INVALID))
    return found


def _leaving(given: Mapping[str, bool], known: Mapping[str, FeatureGate]) -> list[str]:
    """GA and deprecated gates go away in a later release, with everything that names them."""
    return [
        f"feature gate {name} is {gate.stage.value}: it will be removed in a future release, do not set it"
        for name in given
        if (gate := known.get(name)) is not None and gate.stage in (Stage.GA, Stage.DEPRECATED)
    ]
