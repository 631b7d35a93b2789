"""The parts of DynamicResources: devices and pools, claims and their devices, the search, its effects.

`plugin` puts them together. No part depends on nodes without devices, or on private names of other parts:

    devices, inventory   ResourceSlices -> pools, and the nodes that can use each
    claims, requests     a pod -> its ResourceClaims; a claim's spec -> requests
    ledger               the devices in use, by claims in the cluster or by pods being bound
    selectors, cel       CEL expressions -> whether a device matches
    search, allocation   requests + pools -> devices -> the claim's status
    extended             container requests for extended resources -> a claim's requests
    binding              the patches of PreBind, round by round
"""
