"""The packages of the distribution. Metadata is in pyproject.toml; this file only lists what is where.

``lua/`` and ``playbooks/`` are mapped to import packages of another name, which setuptools' own search can't say.
"""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(".", include=["emq_ops", "emq_ops.*"]),
        *find_namespace_packages("archive", include=["emq_archive", "emq_archive.*"]),
        "emq_ops_lua",
        "emq_ops_lua.lib",
        "emq_ops_playbooks",
    ],
    package_dir={
        "emq_ops": "emq_ops",
        "emq_archive": "archive/emq_archive",
        "emq_ops_lua": "lua",
        "emq_ops_lua.lib": "lua/lib",
        "emq_ops_playbooks": "playbooks",
    },
)
