"""Other hosts: which addresses may be asked, and downloads that go on where they broke off."""
