"""The doctor: finds what no transition repairs, and mends what is safe.

`examine` only looks; `mend` acts on what it found, each thing checked again and changed in one script. Both are safe
beside running workers.
"""

from emq_ops.audit.doctor.examination import Diagnosis, examine
from emq_ops.audit.doctor.finding import Finding
from emq_ops.audit.doctor.kinds import KINDS, DamageKind, kinds_named
from emq_ops.audit.doctor.mend import Mended, mend

__all__ = ["KINDS", "DamageKind", "Diagnosis", "Finding", "Mended", "examine", "kinds_named", "mend"]
