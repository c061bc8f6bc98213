"""What the end-to-end tests share."""

from functools import cache
from pathlib import Path

import pytest
from mitmproxy import certs
from mitmproxy.certs import CertStore

# A key is tested for being a good one each time it is read, which takes longer than all the rest of starting a proxy.
certs.load_pem_private_key = cache(certs.load_pem_private_key)


@pytest.fixture(scope="session")
def confdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration folder of mitmproxy with its certificate authority made, once for all tests.

    `provider-ca.pem` in it is a certificate that a provider may show.
    """
    folder = tmp_path_factory.mktemp("confdir")
    CertStore.from_store(folder, "mitmproxy", 2048)
    CertStore.from_store(folder, "provider", 2048)
    return folder
