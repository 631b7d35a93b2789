"""The parts of DynamicResources: devices and pools, claims and their devices, the search, its effects.

`dynamic_resources` puts them together. They know nothing of nodes that have no devices, and nothing of
each other's insides:

    devices, inventory   ResourceSlices -> pools, and which of them a node can use
    claims, requests     a pod -> its ResourceClaims; a claim's spec -> requests
    ledger               which devices are taken, in the cluster's word or in flight
    selectors, cel       CEL expressions -> yes or no about a device
    search, allocation   requests + pools -> devices -> the claim's status
    extended             container requests for extended resources -> a claim's requests
    binding              the patches of PreBind, round by round
"""
