"""What comes from other hosts: which addresses may be asked, and files that go on where they broke off."""
