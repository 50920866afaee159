"""The doctor: whether this machine, its chips and our kernels on them do what they should.

`examination.py` runs the checks in a process of their own (`child.py`), because a kernel that hangs or brings its
process down must harm nothing else, and because a chip has one owner at a time. What is found is kept beside the caches
(runtime/kernels/switches.py), and a kernel that is wrong is not used again on that kind of chip with these versions.
"""
