"""The settings of clients: TLS to bookies, metadata service and quorum, and where entries are placed. They are in the
file that the variable FENCEPOST_CLIENT names.

Commands, programs, Spark's executors, bookies and auto-recovery all read this file.
"""

from __future__ import annotations

import os
from typing import Annotated, ClassVar

from msgspec import Meta

from fencepost.connections.tls import Files, Tls
from fencepost.errors import OptionError
from fencepost.ledger.rules.placement import POLICY, Policy
from fencepost.ledger.settings import Count, FileOfSettings, Number, Unit

ENVIRONMENT = "FENCEPOST_CLIENT"
"""The environment variable that names the file."""


_LISTS = {"repp_regions_to_write": ";", "isolation_bookie_groups": ",", "secondary_isolation_bookie_groups": ","}
"""Settings that are lists, and what separates their parts, as in BookKeeper and Pulsar."""


class ClientConfiguration(FileOfSettings, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How a client connects to bookies, to the metadata service and to members of its quorum, and in which racks it
    places entries. The settings have the names of BookKeeper's client settings.
    """

    command: ClassVar[str] = "docs/run/settings.md"

    tls_trust_store: Annotated[
        str, Meta(description="the trusted authorities, in PEM; with it, the client speaks only TLS")
    ] = ""
    tls_certificate_path: Annotated[str, Meta(description="the client's certificate, in PEM, if it has one")] = ""
    tls_key_store: Annotated[str, Meta(description="the private key to the certificate, in PEM")] = ""
    tls_key_store_password_path: Annotated[
        str, Meta(description="a file with the password of the key, if it has one")
    ] = ""
    tls_hostname_verification_enabled: Annotated[
        bool, Meta(description="whether a certificate must name the host of the connection")
    ] = True
    metadata_tls: Annotated[
        bool, Meta(description="whether the client also speaks TLS to the metadata service, and not only to bookies")
    ] = True
    min_num_racks_per_write_quorum: Annotated[
        Count, Meta(description="the racks that each entry is in, or all racks if there are fewer")
    ] = POLICY.min_num_racks_per_write_quorum
    enforce_min_num_racks_per_write_quorum: Annotated[
        bool, Meta(description="whether a ledger is rather not created, or a bookie not replaced, than in fewer racks")
    ] = POLICY.enforce_min_num_racks_per_write_quorum
    min_num_zones_per_write_quorum: Annotated[
        Count, Meta(description="the zones that each entry is in, at least; a zone is the first part of /zone/rack")
    ] = POLICY.min_num_zones_per_write_quorum
    desired_num_zones_per_write_quorum: Annotated[
        Count, Meta(description="the zones that each entry is in, or all zones if there are fewer")
    ] = POLICY.desired_num_zones_per_write_quorum
    enforce_strict_zoneaware_placement: Annotated[
        bool, Meta(description="whether a ledger is rather not created, or a bookie not replaced, than in fewer zones")
    ] = POLICY.enforce_strict_zoneaware_placement
    repp_regions_to_write: Annotated[
        str,
        Meta(
            description="the regions that entries are spread over, as R1;R2;R3; other bookies are not taken; a region"
            " is the first part of /region/rack"
        ),
    ] = ""
    repp_minimum_regions_for_durability: Annotated[
        Count, Meta(description="with reppRegionsToWrite: the regions that every ack quorum is in, at least")
    ] = POLICY.repp_minimum_regions_for_durability
    repp_enable_durability_enforcement_in_replace: Annotated[
        bool, Meta(description="whether a bookie is rather not replaced than that an ack quorum is in fewer regions")
    ] = POLICY.repp_enable_durability_enforcement_in_replace
    isolation_bookie_groups: Annotated[
        str, Meta(description="the groups of bookies that are taken, as A,B; empty: groups do not matter")
    ] = ""
    secondary_isolation_bookie_groups: Annotated[
        str, Meta(description="the groups that are taken too if isolationBookieGroups do not do")
    ] = ""
    disk_weight_based_placement_enabled: Annotated[
        bool, Meta(description="whether bookies with more free space are taken more often")
    ] = POLICY.disk_weight_based_placement_enabled
    bookie_max_multiple_for_weight_based_placement: Annotated[
        Number, Meta(description="the most that free space counts, in multiples of the median; 0: without a limit")
    ] = POLICY.bookie_max_multiple_for_weight_based_placement
    get_bookie_info_interval_seconds: Annotated[
        Count, Unit("seconds"), Meta(description="how often a client asks bookies for their free space")
    ] = POLICY.get_bookie_info_interval_seconds
    get_bookie_info_retry_interval_seconds: Annotated[
        Count, Unit("seconds"), Meta(description="how often it asks a bookie that does not answer")
    ] = POLICY.get_bookie_info_retry_interval_seconds

    @classmethod
    def of_environment(cls) -> ClientConfiguration:
        """The settings in the file that FENCEPOST_CLIENT names; the defaults if the variable is not set. Raises
        :class:`fencepost.OptionError`, also for a missing file.
        """
        return cls.read(os.environ.get(ENVIRONMENT) or None)

    def tls(self) -> Tls | None:
        """TLS for bookies and for members of a quorum. None: no encryption."""
        if not self.tls_trust_store:
            return None
        files = Files(
            certificate=self.tls_certificate_path,
            key=self.tls_key_store,
            password=self.tls_key_store_password_path,
            trusted=self.tls_trust_store,
        )
        return Tls(files, is_server=False, checks_names=self.tls_hostname_verification_enabled)

    def placement(self) -> Policy:
        """The racks, zones and regions that each entry must be in, and which bookies are taken."""
        given = {name: getattr(self, name) for name in Policy._fields}
        for name, separator in _LISTS.items():
            given[name] = tuple(part.strip() for part in given[name].split(separator) if part.strip())
        return Policy(**given)

    def check(self, origin: str) -> None:
        """Raise :class:`fencepost.OptionError` if settings contradict each other."""
        if bool(self.tls_certificate_path) != bool(self.tls_key_store):
            missing = "tlsKeyStore" if self.tls_certificate_path else "tlsCertificatePath"
            raise OptionError(f"{origin}: a certificate and its key belong together: set {missing} too")
        if self.tls_certificate_path and not self.tls_trust_store:
            raise OptionError(f"{origin}: TLS needs the authorities to trust: set tlsTrustStore too")
        policy = self.placement()
        if policy.secondary_isolation_bookie_groups and not policy.isolation_bookie_groups:
            raise OptionError(
                f"{origin}: secondaryIsolationBookieGroups come after others: set isolationBookieGroups too"
            )
        if 0 < len(policy.repp_regions_to_write) < policy.repp_minimum_regions_for_durability:
            raise OptionError(
                f"{origin}: reppMinimumRegionsForDurability = {policy.repp_minimum_regions_for_durability}:"
                f" reppRegionsToWrite names {len(policy.repp_regions_to_write)}, and must name as many"
            )
