# The labels of the tests, which ctest sets when it starts: the folder of tests/ of each test, `emulated` for the tests on
# the emulated device, `full` for those that `tools/test` leaves out, and `waits`.
#
# `tools/test` runs all tests without the label `full`, `tools/test --all` runs every test. A test belongs to `full` if it
# takes longer than about five seconds of CPU time and another test finds the same kind of fault in less time. A line: the
# folder, and a regular expression for the names of the tests. Each expression matches at least one test.
set(lmx_full
  # More processes than two or three; the default tier has groups of two, three and two nodes.
  "sync All/Processes.*/(mpi|gloo)(1|4|8|4_nodes_of_2)$"
  "sync emulated.scrambled.All/DeviceProcesses.*/[0-3]$"
  # Virtual ranks in other numbers than 2, 3 and two nodes of two.
  "sync All/Strategies.Conform/.*_(1|4|8|2_nodes_of_1|6_nodes_of_2)$"
  # Codecs on a device that differ from others in their kernels only, which DeviceComm compares.
  "sync emulated.scrambled.All/DeviceStrategies.*(scale1000reducefp32|bf16|residualnone)$"
  # Large batches. The recipe of the same paper with a smaller batch stays.
  "full_size Shipped/FullSize.MakesUpdates/(puri_amazon_4096_|puri_convergence_puri_convergence_batch_(4096|8192|16384)|ott_wmt_enfr_|ott_paracrawl_|ott_table1_nodes_16_)$"
  # The slowest desk scales on the emulated device; another recipe of the same model and strategy stays.
  "full_size emulated.scrambled.Shipped/DeviceDesk.*/(puri_lr_grid|ott_paracrawl|ott_table1_nodes_16|patwary_ablation)$"
  # A Transformer whose norms follow the sums; the one whose norms come first stays.
  "golden emulated.scrambled.Runs/Golden.TrainsOnACudaDevice/transformer_(fp32|bf16|fp16)$"
  # Long messages between four processes; those between three stay.
  "comm All/ProcessGroupsOf.LongMoves/(mpi|gloo)4$"
  # Planned memory with every strategy against a run; a batch in parts and a validation stay.
  "plan PlanMemory.AgreesWith(EachStrategy|TwoLevels)$"
  # Plans of every shipped experiment, and of ten thousand ranks.
  "experiment ExperimentPages.AllListsTimeAndData$"
  "plan PlanServer.TenThousandRanksNeedLessThanAGigabyte$"
  "run DryRun.MemoryEstimateIsNearTheMeasuredPeak$"
  # Long attention on the emulated device; that of one tile stays.
  "ops emulated.scrambled.DeviceLongAttention.EqualsTheCpu$"
  "run CudnnRun.WithoutCudnnOneLineSaysSo$"
  # Integers of every size; the largest ones stay.
  "memory Recipes/ExtremeValues.OfAllSizesAreRefusedOrCounted/"
  "memory TooLargeToCount.RowsOfAllRanks"
  # Runs that are ended in many places, one after the other.
  "run Ranks/Killed.AtRandomMomentsEndsInTheSameBits/1$"
  "comm Gloo.(ARankThatIsKilledBetweenLongMessages|AProcessThatTheKernelDoesNotFind)$"
  # A sum to rounding on the emulated device; the CPU adds in the same order.
  "train emulated.scrambled.(Pairs|Ranks).EveryNumberOfRanksEqualsOneToRounding$"
  # Decisions of the host, with the emulated device: the same tests on the CPU stay, and Workers.PausesLeaveNoTrace,
  # Workers.TheSameRunTwiceGivesTheSameBits and Pairs.ResumesToTheBitWithinAnEpoch compute the same steps on a device.
  "train emulated.scrambled.Workers.(MoreRanksThanSequences|StalenessIsThatOfTheDelays|AReplayGivesTheSameBits)$"
  "train emulated.scrambled.Pairs.(StopsWhenValidationSaysSo|MeasuredTimesStayWithTheRun|AMixResumesToTheBitWithinAnEpoch)$"
  # Two of the three strategies that the check `mean` of lmx plugins check finds; the third one stays.
  "cli All/Faults.FailTheirCheckAlone/top_k_[12]$"
  "train emulated.scrambled.Fp16.(OverflowsRecoversAndComesOutAsFp32|ResidualsFollowTheScaleExactly)$"
)

# Tests that mostly sleep: they wait until a rank is reported as lost, or until a program has begun. They count as half a
# processor.
set(lmx_waits
  "base Locks.OneHolderAtATime"
  "comm All/ProcessGroups[.]"
  "comm (Gloo|Mpi|emulated.scrambled.Nccl)[.].*(Named|Refused|Killed|Join|NotMpis|NotFind|NotEnd|Messages|ASignalEnds)"
  "cuda_emulator NcclEmulator[.]"
  "experiment LaunchedExperiment[.]|Experiment.(OneProcessAtATime|ACellWaits)"
  "memory Fit.AKilledProbeLeavesNothing"
  "restart ."
  "run Resume.TwoProcessesInOneRun|MismatchTest[.]"
  "sweep SlurmSweep[.]|SweepMemory.(SlurmsStateIsAnOutcome|AnArrayIsFoundAgain)|KilledSweep.OneProcessAtATime"
)

# lmx_label(FOLDER TESTS [label]): labels the tests of one program.
function(lmx_label folder tests)
  foreach(label full waits)
    set(expression "")
    foreach(line ${lmx_${label}})
      if(line MATCHES "^${folder} +(.*)$")
        list(APPEND expression "${CMAKE_MATCH_1}")
      endif()
    endforeach()
    list(JOIN expression "|" ${label})
  endforeach()
  foreach(test ${tests})
    set(labels ${folder} ${ARGN})
    set(processors 2)
    if(full AND test MATCHES "${full}" OR test MATCHES "^emulated.(ascending|descending)")
      list(APPEND labels full)
    endif()
    if(waits AND test MATCHES "${waits}")
      list(APPEND labels waits)
      set(processors 1)
    endif()
    set_tests_properties(${test} PROPERTIES LABELS "${labels}" PROCESSORS ${processors})
  endforeach()
endfunction()
